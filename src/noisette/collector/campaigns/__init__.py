"""The life of a campaign: who may answer it."""

from noisette._moved import names_of

__getattr__ = names_of(__name__, "noisette.survey.campaigns")
