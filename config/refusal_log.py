"""What strangers did wrong is one line of the log, without a traceback of ours: nobody can fill a disk with those, or
bury a real defect under them.
"""

import logging

SECURITY, REQUEST = "django.security", "django.request"


class RefusalsInOneLine(logging.Filter):
    """Takes the traceback from Django's records about refused requests; defects (ERROR of `django.request`) keep it."""

    def filter(self, record: logging.LogRecord) -> bool:
        is_refusal = record.name.startswith(SECURITY) or (record.name == REQUEST and record.levelno < logging.ERROR)
        if is_refusal:
            record.exc_info = record.exc_text = None
        return True
