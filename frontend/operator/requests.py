"""Generations: what runs and waits now, what ended last, and a button that stops one."""

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST, require_safe

from frontend.operator.access import operator_act, operator_page
from inference import job_list
from inference import stats as server_stats
from inference.openai import submission

OPEN_SHOWN = 200
ENDED_PER_PAGE = 50
PAGE_DIGITS = 4


@operator_page
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "frontend/operator/requests.html", _context(request))


@operator_page
@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """Both tables, for htmx."""
    return render(request, "frontend/operator/_requests.html", _context(request))


@operator_act
@require_POST
def cancel(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Asks the backbones to stop it; cancelling twice, or what has ended, is harmless."""
    if not job_list.exists(job_id):
        raise Http404
    submission.cancel([str(job_id)])
    messages.success(request, _("The backbone was asked to stop it."))
    return redirect("operator-requests")


def _context(request: HttpRequest) -> dict[str, object]:
    """One line more than is shown tells whether there is a next page, without counting the table."""
    asked = request.GET.get("page", "")
    number = int(asked) or 1 if asked.isdecimal() and len(asked) <= PAGE_DIGITS else 1
    ended = job_list.ended_jobs((number - 1) * ENDED_PER_PAGE, ENDED_PER_PAGE + 1)
    return {
        "open": job_list.open_jobs(OPEN_SHOWN),
        "ended": ended[:ENDED_PER_PAGE],
        "number": number,
        "before": number - 1,
        "next": number + 1 if len(ended) > ENDED_PER_PAGE else 0,
        "stats": server_stats.snapshot(),
    }
