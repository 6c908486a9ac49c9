"""The pages of `/me/`. Every change is a command of the market, made in the name of "owner"."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from frontend import figures as page_figures
from frontend.join_views import ANY_KERNEL, SESSION_KEY
from frontend.owner import figures
from frontend.owner.accounts import account_of, close_account, owner_page
from frontend.owner.chart import chart
from frontend.pairing import invite_link
from inference.worker.options import TOKEN_VARIABLE
from market import commands, enrolment, queries
from market.commands.nodes import NAME_LIMIT
from market.commands.owners import PAYEE_LIMIT
from market.errors import BadRequest, MarketError
from market.models import Node
from market.statements import statement, statement_csv

BY = "owner"


def owner_of(request: HttpRequest) -> str:
    """The account of who is signed in."""
    assert isinstance(request.user, User)
    return account_of(request.user)


def own_node(request: HttpRequest, node_id: str) -> str:
    """The id of a device of the own account; whoever asks for another's learns nothing. Raises Http404."""
    if not Node.objects.filter(node_id=node_id, owner_id=owner_of(request), erased_at__isnull=True).exists():
        raise Http404
    return node_id


@owner_page
@require_safe
def me(request: HttpRequest) -> HttpResponse:
    return _page(request)


def _page(request: HttpRequest, *, status: int = 200, **context: object) -> HttpResponse:
    owner_id = owner_of(request)
    days = figures.earnings_by_day(figures.device_ids(owner_id))
    shown = {
        "account": figures.account(owner_id, request.GET.get("page", "1")),
        "chart": chart(days),
        "days": [day for day in reversed(days) if day.earned or day.forfeited],
        "strays": _strays(request),
        "presets": page_figures.budget_presets(),
        "name_limit": NAME_LIMIT,
        "may_invite": enrolment.mode() is enrolment.Registration.INVITE,
        "invites": enrolment.open_invites(owner_id),
        "payee_limit": PAYEE_LIMIT,
        **context,
    }
    return render(request, "frontend/owner/index.html", shown, status=status)


@owner_page
@require_safe
def devices(request: HttpRequest) -> HttpResponse:
    """What changes of the devices, for htmx; open forms beside it stay as they are."""
    account = figures.account(owner_of(request), request.GET.get("page", "1"))
    return render(request, "frontend/owner/live.html", {"account": account})


def _strays(request: HttpRequest) -> list[tuple[str, str]]:
    """(id, name) of devices that were registered from this browser and belong to nobody yet."""
    known = [str(node_id) for node_id in request.session.get(SESSION_KEY, [])]
    free = Node.objects.filter(node_id__in=known, owner_id="", erased_at__isnull=True)
    names = queries.node_names(known)
    return [(node_id, names.get(node_id, node_id)) for node_id in free.values_list("node_id", flat=True)]


@owner_page
@require_POST
def add_device(request: HttpRequest) -> HttpResponse:
    """Registers a device in this account and shows its link and QR code, once."""
    experts = request.POST.get("experts", "")
    preset = next((one for one in page_figures.budget_presets() if str(one.experts) == experts), None)
    try:
        with transaction.atomic():
            node_id, token = commands.register_node(
                request.POST.get("name", ""), ANY_KERNEL, preset.size_bytes if preset else None
            )
            commands.link_node(node_id, owner_of(request), by=BY, reason="registered from the account's page")
    except MarketError as error:
        return _page(request, problem=str(error), status=error.status)
    return _page(request, token=token, token_of=queries.node_names([node_id]).get(node_id, node_id))


@owner_page
@require_POST
def invite(request: HttpRequest) -> HttpResponse:
    """Makes a code for one account or device and shows it, once."""
    if enrolment.mode() is not enrolment.Registration.INVITE:
        raise Http404
    owner_id = owner_of(request)
    try:
        code = enrolment.make_invite(request.POST.get("note", ""), by=BY, owner_id=owner_id)
    except MarketError as error:
        return _page(request, problem=str(error), status=error.status)
    return _page(request, invite_code=code, invite_link=invite_link(code, settings.PUBLIC_URL))


@owner_page
@require_POST
def adopt_device(request: HttpRequest) -> HttpResponse:
    """Takes a device over that proves itself: by its token, or because this browser registered it."""
    node_id = request.POST.get("node", "")
    if node_id not in [stray for stray, _name in _strays(request)]:
        node = queries.authenticate(request.POST.get("token", "").strip())
        if node is None or node.erased:
            return _page(request, problem=_("No device has this token."), status=400)
        if node.owner_id not in ("", owner_of(request)):
            return _page(request, problem=_("This device belongs to another account."), status=409)
        node_id = node.node_id
    return _done(
        request,
        lambda: commands.link_node(node_id, owner_of(request), by=BY, reason="the account proved the device"),
        _("The device is in your account."),
    )


@owner_page
@require_POST
def new_token(request: HttpRequest, node_id: str) -> HttpResponse:
    """A new link for a device whose token was lost or seen; the old one stops working at once."""
    own = own_node(request, node_id)
    token = commands.rotate_token(own, by=BY, reason="asked for on the account's page")
    node = queries.node(own)
    is_stage = node is not None and node.role == "stage"  # no page lends one
    command = f"{TOKEN_VARIABLE}={token} python -m inference.stage --server {settings.PUBLIC_URL}" if is_stage else ""
    return _page(request, token=token, command=command, token_of=queries.node_names([own]).get(own, own))


@owner_page
@require_POST
def leave(request: HttpRequest, node_id: str) -> HttpResponse:
    """Announces when the device goes, or takes that back when no time is given."""
    own, text = own_node(request, node_id), request.POST.get("leaves_at", "").strip()
    if not text:
        return _done(request, lambda: commands.cancel_leave(own), _("The device stays."))
    return _done(
        request, lambda: commands.plan_leave(own, _moment(text)), _("Noted: until then the device goes on lending.")
    )


def _moment(text: str) -> datetime:
    """A local-time field's value, taken as UTC. Raises BadRequest."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(_("Give a day and a time, for example 2027-01-31T18:00.")) from None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


@owner_page
@require_POST
def forget_device(request: HttpRequest, node_id: str) -> HttpResponse:
    """Removes a device for good: its claims end, its token and name are deleted, the books stay.

    Removed devices are not paid any more, so one with money is removed only when its owner gives that up.
    """
    own = own_node(request, node_id)
    if figures.money_of(own).unpaid and "give_up" not in request.POST:
        said = _("This device has credits that are not paid yet. Let it leave and remove it after the payout, or tick "
                 "that you give them up.")  # fmt: skip
        return _page(request, problem=said, status=409)
    return _done(
        request,
        lambda: commands.erase_node(own, by=BY, reason="removed by its owner"),
        _("The device is removed."),
    )


@owner_page
@require_POST
def payee(request: HttpRequest) -> HttpResponse:
    owner_id = owner_of(request)
    return _done(
        request, lambda: commands.set_payee(owner_id, request.POST.get("payee", "")), _("The payout method is stored.")
    )


def _done(request: HttpRequest, act: Callable[[], object], said: str) -> HttpResponse:
    """Does it and goes back to the page, or shows the page with the market's refusal."""
    try:
        act()
    except MarketError as error:
        return _page(request, problem=str(error), status=error.status)
    messages.success(request, said)
    return redirect("me")


@owner_page
@require_safe
def statement_file(request: HttpRequest) -> HttpResponse:
    """Every movement of the account's money as CSV, of all devices or of one (?device=)."""
    wanted = request.GET.get("device", "")
    node_ids = [own_node(request, wanted)] if wanted else figures.device_ids(owner_of(request))
    try:
        lines = [
            replace(line, account=f"{node_id}/{line.account}") for node_id in node_ids for line in statement(node_id)
        ]
    except MarketError as error:
        return _page(request, problem=str(error), status=error.status)
    text = statement_csv(sorted(lines, key=lambda line: (line.position, line.account)))
    answer = HttpResponse(text, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="statement.csv"'
    return answer


@owner_page
@require_http_methods(["GET", "HEAD", "POST"])
def close(request: HttpRequest) -> HttpResponse:
    """Asks for the password, then forgets the person."""
    assert isinstance(request.user, User)
    shown = {"account": figures.account(owner_of(request))}
    if request.method != "POST":
        return render(request, "frontend/owner/close.html", shown)
    if not request.user.check_password(request.POST.get("password", "")):
        return render(
            request, "frontend/owner/close.html", {**shown, "problem": _("This is not the password.")}, status=400
        )
    close_account(request.user)
    request.session.flush()
    return redirect("me-closed")
