"""Accounts of owners: a login of Django's and an account of the market, made and closed together.

A name and a password, nothing else: no address is asked for, so nobody can reset a password but the operator
(`manage.py changepassword`).
"""

from functools import wraps
from typing import Any

from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from config import rate_limit
from frontend.models import OwnerLogin
from frontend.security import View, page, refused
from market import commands, enrolment, limits
from market.commands.nodes import NAME_LIMIT
from market.errors import BadRequest, TooManyRequests
from market.models import OwnerProfile

TRIES_PER_MINUTE = 10
NEW_ACCOUNTS_PER_MINUTE = 5


def check_rate(request: HttpRequest, what: str, limit: int) -> None:
    """Counts one try of this address. Raises TooManyRequests."""
    who = rate_limit.asker(request.META.get("REMOTE_ADDR", ""), f"frontend.{what}")
    if wait := rate_limit.seconds_to_wait(f"{what}/{who}", limit):
        raise TooManyRequests(_("Too many tries. Wait %(seconds)d seconds.") % {"seconds": wait}, wait)


def open_account(name: str, password: str, invite: str = "") -> User:
    """A login with an account of its own. Raises BadRequest for a name that is taken or a password that is weak,
    RegistrationClosed, BadInvite."""
    name = " ".join(name.split())
    if not 1 <= len(name) <= NAME_LIMIT:
        raise BadRequest(_("A name has 1 to %(limit)d characters.") % {"limit": NAME_LIMIT})
    try:
        UnicodeUsernameValidator()(name)
        validate_password(password, User(username=name))
    except ValidationError as problem:
        raise BadRequest(" ".join(problem.messages)) from None
    taken = BadRequest(_("This name is taken."))
    try:
        with transaction.atomic():
            if User.objects.filter(username__iexact=name).exists():
                raise taken
            enrolment.admit(invite)
            user = User.objects.create_user(name, password=password)
            OwnerLogin.objects.create(user=user, owner_id=commands.create_owner(name))
    except IntegrityError:  # somebody took it a moment ago: a form that was sent twice
        raise taken from None
    return user


def right_login(request: HttpRequest, name: str, password: str) -> User | None:
    """The login that this name and password are; None when they are none."""
    user = authenticate(request, username=" ".join(name.split()), password=password)
    return user if isinstance(user, User) else None


def account_of(user: User) -> str:
    """The account's id; a login without one, such as a member of staff's, gets it now."""
    found = OwnerLogin.objects.filter(user=user).first()
    if found is None:
        with transaction.atomic():
            owner_id = commands.create_owner(user.get_username()[:NAME_LIMIT])
            found, made = OwnerLogin.objects.get_or_create(user=user, defaults={"owner_id": owner_id})
            if not made:  # the same login in another tab was faster
                OwnerProfile.objects.filter(owner_id=owner_id).delete()
    return found.owner_id


def close_account(user: User) -> None:
    """Forgets the person: names, payout method, tokens; claims end, the books stay. Staff keeps its login."""
    owner_id = account_of(user)
    with transaction.atomic():
        commands.erase_owner(owner_id, by="owner", reason="the owner closed the account")
        OwnerLogin.objects.filter(user=user).delete()
        if not user.is_staff:
            user.delete()


def owner_page(view: View) -> View:
    """A view for somebody who is signed in: never cached, with the pages' policy; others are sent to the sign-in."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect(f"{reverse('me-sign-in')}?{urlencode({'next': request.path})}")
        if request.method == "POST":
            try:
                limits.count_account_change(str(request.user.pk))
            except TooManyRequests as error:
                return refused(render(request, "frontend/owner/too_many.html", {"problem": error}, status=429), error)
        response: HttpResponseBase = view(request, *args, **kwargs)
        return response

    return never_cache(page(checked))


def way_back(request: HttpRequest) -> str:
    """Where the visitor wanted to go before signing in; never another site."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    is_ours = url_has_allowed_host_and_scheme(wanted, allowed_hosts=None)
    return wanted if is_ours else reverse("me")
