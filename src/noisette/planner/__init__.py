"""The plan as a web page: one file that computes in the browser and loads nothing from anywhere."""

from noisette.planner.page import page

__all__ = ["page"]
