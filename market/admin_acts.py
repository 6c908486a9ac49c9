"""What a person can do from an admin page: a form that asks for a reason, and a command that records who and why.

Nothing is edited in place: an act calls a command of `market.commands`, which appends an event, or refuses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from market.commands.nodes import REASON_LIMIT
from market.errors import MarketError

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    # Generic for type checkers only.
    Base = admin.ModelAdmin


class ReasonForm(forms.Form):
    """Every act asks why; the answer is part of its event."""

    reason = forms.CharField(max_length=REASON_LIMIT, help_text="Stored with your name; the owner can read it.")


@dataclass(frozen=True)
class Act:
    """run(key of the object or "", who, the form's values) -> what to tell; raises MarketError.

    permission: needed besides access to the page. offered: whether the act makes sense for an object.
    """

    name: str
    label: str
    permission: str
    run: Callable[[str, str, dict[str, Any]], str]
    form: type[ReasonForm] = ReasonForm
    offered: Callable[[Any], bool] = lambda _: True


class ReadOnlyAdmin(Base):
    """Changes happen through commands, which append events."""

    # No join and no count of a large table on every page.
    show_full_result_count = False
    list_per_page = 100

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class ActingAdmin(ReadOnlyAdmin):
    """Read-only pages with buttons. acts: for one object; list_acts: for the whole list."""

    change_form_template = "admin/market/acting_form.html"
    change_list_template = "admin/market/acting_list.html"
    acts: ClassVar[tuple[Act, ...]] = ()
    list_acts: ClassVar[tuple[Act, ...]] = ()

    def get_urls(self) -> list[URLPattern]:
        name = f"market_{self.opts.model_name}"
        return [
            path("act/<slug:act>/", self.admin_site.admin_view(self.act_view), name=f"{name}_list_act"),
            path("<path:key>/act/<slug:act>/", self.admin_site.admin_view(self.act_view), name=f"{name}_act"),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        found = self.get_object(request, object_id)
        acts = [act for act in self.acts if found is not None and self._may(request, act) and act.offered(found)]
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), "acts": acts})

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        acts = [act for act in self.list_acts if self._may(request, act)]
        return super().changelist_view(request, {**(extra_context or {}), "acts": acts})

    def act_view(self, request: HttpRequest, act: str, key: str = "") -> HttpResponse:
        """GET: the form. POST: the act, then back to the page; what the market refuses is shown in the form."""
        chosen = next((one for one in (self.acts if key else self.list_acts) if one.name == act), None)
        if chosen is None:
            raise Http404
        if not self.has_view_permission(request) or not self._may(request, chosen):
            raise PermissionDenied
        form = chosen.form(request.POST, request.FILES) if request.method == "POST" else chosen.form()
        if form.is_valid():
            try:
                told = chosen.run(key, request.user.get_username(), form.cleaned_data)
            except MarketError as refusal:
                form.add_error(None, str(refusal))
            else:
                messages.success(request, told)
                return HttpResponseRedirect(self._page(key))
        title = f"{chosen.label}: {self.opts.verbose_name} {key}" if key else chosen.label
        context = {**self.admin_site.each_context(request), "form": form, "title": title, "opts": self.opts}
        return TemplateResponse(request, "admin/market/act.html", {**context, "back": self._page(key)})

    def _may(self, request: HttpRequest, act: Act) -> bool:
        return bool(request.user.has_perm(f"market.{act.permission}"))

    def _page(self, key: str) -> str:
        name = f"admin:market_{self.opts.model_name}"
        return reverse(f"{name}_change", args=[key]) if key else reverse(f"{name}_changelist")
