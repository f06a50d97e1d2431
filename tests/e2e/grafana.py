#!/usr/bin/env python3
"""Reads a dashboard into Grafana's own typed models (grafana-foundation-sdk) and says what they do not know.

  PYTHONPATH=... grafana.py DASHBOARD     prints the number of panels and queries; exit 1 with a line per fault

Every key must come back out of the model with its value, and every value must be of the type that the model names: the
model's own constructors take whatever they are given."""

import enum
import importlib
import json
import pkgutil
import sys
import typing

from grafana_foundation_sdk import models
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

# What Grafana writes and reads, and its published models have no place for: shown in the list of variables; the text of
# a Prometheus annotation.
BESIDE = {"definition", "titleFormat"}
faults = []


def encoded(model):
    return json.loads(JSONEncoder(sort_keys=True).encode(model))


def lost(given, back, at=""):
    """What of the file the model does not give back."""
    if isinstance(given, dict) and isinstance(back, dict):
        for key, value in given.items():
            if key in back:
                lost(value, back[key], f"{at}/{key}")
            elif key not in BESIDE:
                faults.append(f"{at}/{key}: no such key")
    elif isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        for place, pair in enumerate(zip(given, back)):
            lost(*pair, f"{at}/{place}")
    elif given != back:
        faults.append(f"{at}: {given!r} became {back!r}")


def fits(value, hint):
    """Whether a value is what a type hint says."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any or hint is object or isinstance(hint, typing.TypeVar):
        return True
    if origin is typing.Union:
        return any(fits(value, choice) for choice in args)
    if origin is typing.Literal:
        return value in args
    if origin is list:
        return isinstance(value, list) and all(fits(item, args[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, args[1]) for item in value.values())
    if isinstance(value, dict) and hasattr(hint, "from_json"):
        # Some places the models' readers leave as they are.
        inner = hint.from_json(value)
        lost(value, encoded(inner), hint.__name__)
        typed(inner, hint.__name__)
        return True
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [choice.value for choice in hint] or isinstance(value, hint)
    return isinstance(value, hint) if isinstance(hint, type) else True


def typed(value, at="dashboard"):
    """Every attribute of every model against its class's hints."""
    if isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            typed(item, f"{at}/{place}")
    elif isinstance(value, dict):
        for key, item in value.items():
            typed(item, f"{at}/{key}")
    elif type(value).__module__.startswith(models.__name__) and not isinstance(value, enum.Enum):
        hints = typing.get_type_hints(type(value))
        for name, item in vars(value).items():
            if name in hints and not fits(item, hints[name]):
                faults.append(f"{at}/{name}: {item!r} is no {hints[name]}")
            typed(item, f"{at}/{name}")


for module in pkgutil.iter_modules(models.__path__):
    importlib.import_module(f"{models.__name__}.{module.name}")
plugins.register_default_plugins()
given = json.load(open(sys.argv[1]))
model = dashboard.Dashboard.from_json(given)
lost(given, encoded(model))
typed(model)

queries = [target for panel in model.panels or [] for target in getattr(panel, "targets", None) or []]
for panel in model.panels or []:
    # A model of its own, or the options were taken as they are.
    if panel.type_val not in ("row",) and isinstance(panel.options, dict):
        faults.append(f"panel {panel.title!r}: the type {panel.type_val!r} is no panel of Grafana's")
for target in queries:
    if type(target).__module__ != f"{models.__name__}.prometheus":
        faults.append(f"query {target!r} was not read as Prometheus's")
print(f"{len(model.panels or [])} panels, {len(queries)} queries")
for fault in faults:
    print(fault)
sys.exit(bool(faults))
