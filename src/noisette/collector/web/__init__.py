"""The HTTP service and the pages that people look at."""
