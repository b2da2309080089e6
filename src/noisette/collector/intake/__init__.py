"""From the door to the writer: what arrives is read, checked and handed over."""

from noisette._moved import names_of

__getattr__ = names_of(__name__, "noisette.collector.intake.reading")
