"""`/keys`: staff make and revoke API keys. A new key is shown once, in the answer to the form that made it."""

from django.contrib.admin.views.decorators import staff_member_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from frontend.security import page
from inference import api_keys
from inference.errors import BadParameter


@staff_member_required
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@page
def keys(request: HttpRequest) -> HttpResponse:
    context: dict[str, object] = {"name_limit": api_keys.NAME_LENGTH_LIMIT}
    status = 200
    if request.method == "POST":
        try:
            view, key = api_keys.create_key(request.POST.get("name", ""), trusted_only="trusted_only" in request.POST)
            context |= {"new_key": key, "new_view": view}
        except BadParameter as error:
            context |= {"problem": str(error), "name": request.POST.get("name", "")}
            status = 400
    return render(request, "frontend/keys.html", {**context, "keys": api_keys.list_keys()}, status=status)


@staff_member_required
@require_POST
@page
def revoke(request: HttpRequest, key_id: int) -> HttpResponse:
    """Revoking twice is harmless."""
    api_keys.revoke_key(key_id)
    return redirect("keys")
