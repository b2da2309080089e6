"""Settings shared by all tests."""

from hypothesis import settings

# The same examples on every run and every machine; a slow machine is not a failure.
settings.register_profile("noisette", derandomize=True, deadline=None)
settings.load_profile("noisette")
