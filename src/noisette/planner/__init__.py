"""The plan as a web page: one file that computes in the browser and loads nothing from anywhere."""

from noisette.planner.page import page
from noisette.planner.surveys import survey_page

__all__ = ["page", "survey_page"]
