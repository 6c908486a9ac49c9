"""Addresses below /operator/."""

from django.urls import URLPattern, path

from frontend.operator import access, alerts, builds, heat_map, node_acts, nodes, policy, requests, series

BUILD, NODE = "<str:fingerprint>", "<str:node_id>"

urlpatterns: list[URLPattern] = [
    path("login", access.login, name="operator-login"),
    path("logout", access.logout, name="operator-logout"),
    path("", heat_map.page, name="operator"),
    path("tiles", heat_map.tiles, name="operator-tiles"),
    path("stages", heat_map.stage_table, name="operator-stages"),
    path("layers", heat_map.layers, name="operator-layers"),
    path("cells", heat_map.cells, name="operator-cells"),
    path(f"layer/{BUILD}/<int:number>", heat_map.layer, name="operator-layer"),
    path(f"cell/{BUILD}/<int:number>/<int:expert>", heat_map.cell, name="operator-cell"),
    path("series", series.page, name="operator-series"),
    path("series/data", series.data, name="operator-series-data"),
    path("nodes", nodes.page, name="operator-nodes"),
    path("nodes/add", nodes.phone, name="operator-phone"),
    path(f"nodes/{NODE}", nodes.node, name="operator-node"),
    path(f"nodes/{NODE}/<slug:name>", node_acts.act, name="operator-act"),
    path("builds", builds.page, name="operator-builds"),
    path("builds/publish", builds.publish, name="operator-publish"),
    path(f"builds/{BUILD}", builds.change, name="operator-build-change"),
    path("requests", requests.page, name="operator-requests"),
    path("requests/live", requests.live, name="operator-requests-live"),
    path("requests/<uuid:job_id>/cancel", requests.cancel, name="operator-cancel"),
    path("alerts", alerts.page, name="operator-alerts"),
    path("alerts/live", alerts.live, name="operator-alerts-live"),
    path("policy", policy.page, name="operator-policy"),
]
