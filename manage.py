#!/usr/bin/env python
"""Django's command line: `python manage.py help` lists what this project can do."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import execute_from_command_line

    from config.environment import EnvironmentValueError

    try:
        execute_from_command_line(sys.argv)
    except EnvironmentValueError as error:
        sys.exit(f"Wrong setting: {error} (docs/settings.md lists all).")


if __name__ == "__main__":
    main()
