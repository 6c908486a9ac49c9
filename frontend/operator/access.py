"""Who may see the operator's pages: staff. Everybody else is sent to the login, or told that they may not."""

from functools import wraps
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.views import LoginView, LogoutView, redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from config import rate_limit
from frontend.security import View, page

OPERATE = "market.operate_nodes"
LOGINS_PER_MINUTE = 20


def operator_page(view: View) -> View:
    """A view for staff: never cached, with the pages' policy; strangers get the login, other users 403."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return _to_login(request)
        if not is_staff(request.user):
            return render(request, "frontend/operator/forbidden.html", status=403)
        response: HttpResponseBase = view(request, *args, **kwargs)
        return response

    return never_cache(page(checked))


def operator_act(view: View) -> View:
    """A view that changes something: staff with the permission to operate nodes."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.has_perm(OPERATE):
            return render(request, "frontend/operator/forbidden.html", {"needs": OPERATE}, status=403)
        response: HttpResponseBase = view(request, *args, **kwargs)
        return response

    return operator_page(checked)


def is_staff(user: object) -> bool:
    return isinstance(user, AbstractBaseUser) and user.is_active and bool(getattr(user, "is_staff", False))


def who(request: HttpRequest) -> str:
    """The operator's login, as events name it."""
    return str(request.user.get_username())


def _to_login(request: HttpRequest) -> HttpResponse:
    """A fragment that htmx asked for cannot hold a login page: the whole page goes there."""
    login = reverse("operator-login")
    if request.headers.get("HX-Request"):
        return HttpResponse(status=204, headers={"HX-Redirect": login})
    return redirect_to_login(request.get_full_path(), login)


class Login(LoginView):
    template_name = "frontend/operator/login.html"
    next_page = "operator"
    redirect_authenticated_user = False

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Guessing passwords is slow: so many tries per address and minute."""
        who = rate_limit.asker(request.META.get("REMOTE_ADDR", ""), "frontend.login")
        if wait := rate_limit.seconds_to_wait(f"login/{who}", LOGINS_PER_MINUTE):
            form = self.get_form()
            form.add_error(None, _("Too many tries. Wait %(seconds)d seconds.") % {"seconds": wait})
            context = self.get_context_data(form=form)
            return self.render_to_response(context, status=429, headers={"Retry-After": str(wait)})
        return super().post(request, *args, **kwargs)


login = page(Login.as_view())
logout = page(LogoutView.as_view(next_page="operator-login"))
