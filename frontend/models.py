"""Tables of the pages: which login opens which account."""

from django.conf import settings
from django.db import models


class OwnerLogin(models.Model):
    """A login and the account (of market.models.OwnerProfile) that it opens. Personal, and gone with the login."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="owner_login")
    owner_id = models.CharField(max_length=40, unique=True)

    def __str__(self) -> str:
        return f"{self.user} opens {self.owner_id}"
