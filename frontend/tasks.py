"""The Celery task of the pages: one sample of the figures, as often as the timetable says."""

import redis
from celery import shared_task
from django.conf import settings

from frontend import samples


@shared_task(name="frontend.sample", ignore_result=True)
def sample() -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        samples.take(client)
