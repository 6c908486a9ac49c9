"""Figures that others can run: `manage.py bench NAME` (shapes of the output: docs of `report`)."""
