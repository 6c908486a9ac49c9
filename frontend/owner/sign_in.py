"""Signing in, signing out, opening an account."""

from django.contrib.auth import login, logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from frontend.owner import accounts
from frontend.security import page, refused
from market import enrolment
from market.commands.nodes import NAME_LIMIT
from market.errors import MarketError


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@page
@sensitive_post_parameters("password")
def sign_in(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _form(request)
    try:
        accounts.check_rate(request, "sign-in", accounts.TRIES_PER_MINUTE)
        user = accounts.right_login(request, request.POST.get("name", ""), request.POST.get("password", ""))
    except MarketError as error:
        return refused(_form(request, problem=str(error), status=error.status), error)
    if user is None:
        # The same words for an unknown name and a wrong password: names cannot be tried out.
        return _form(request, problem=_("Name and password do not match."), status=400)
    login(request, user)
    return redirect(accounts.way_back(request))


@require_POST
@never_cache
@page
@sensitive_post_parameters("password")
def sign_up(request: HttpRequest) -> HttpResponse:
    try:
        accounts.check_rate(request, "sign-up", accounts.NEW_ACCOUNTS_PER_MINUTE)
        user = accounts.open_account(
            request.POST.get("name", ""), request.POST.get("password", ""), request.POST.get("invite", "")
        )
    except MarketError as error:
        return refused(_form(request, new_problem=str(error), status=error.status), error)
    login(request, user)
    return redirect(accounts.way_back(request))


def _form(request: HttpRequest, *, status: int = 200, **context: object) -> HttpResponse:
    shown = {
        "name": request.POST.get("name", ""),
        "next": request.POST.get("next") or request.GET.get("next", ""),
        "name_limit": NAME_LIMIT,
        "registration": enrolment.mode().value,
        **context,
    }
    return render(request, "frontend/owner/sign_in.html", shown, status=status)


@require_POST
@page
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("me-sign-in")


@require_safe
@page
def closed(request: HttpRequest) -> HttpResponse:
    return render(request, "frontend/owner/closed.html")
