#!/usr/bin/env python3
"""Makes prices/prices.json from the price list that the Python package litellm carries.

Usage: scripts/update-prices.py [VERSION]

Takes the package from the Python package index, keeps the models that answer text for the vendors we
know, and writes their prices as whole pico-dollars a token, one model a line. The package's licence is
kept beside the table.
"""

import datetime
import decimal
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

LIST = "litellm/model_prices_and_context_window_backup.json"
VENDORS = ("anthropic", "openai", "gemini", "deepseek")
HERE = pathlib.Path(__file__).resolve().parent.parent / "prices"
PICOS = decimal.Decimal(10) ** 12
TIER = re.compile(r"^input_cost_per_token_above_(\d+)k_tokens$")


def picos(cost):
    """Whole pico-dollars; a fraction is rounded up, so that nothing is ever charged too little."""
    return int((cost * PICOS).to_integral_value(decimal.ROUND_CEILING))


SERVICES = ("flex", "priority")


def rates(model, vendor, tier="", service=""):
    """The prices of a model in one tier, or None where the list has none."""

    def cost(name, hour=""):
        # Names end in the tier and the service tier, but for the one-hour cache, whose name comes first.
        return model.get(f"{name}{hour}{tier}{service}") or None

    prompt, answer = cost("input_cost_per_token"), cost("output_cost_per_token")
    if prompt is None or answer is None:
        return None
    answer = max(answer, cost("output_cost_per_reasoning_token") or answer)
    # Without a price of its own a cached token costs what any other does, never nothing.
    read = cost("cache_read_input_token_cost") or prompt
    written = cost("cache_creation_input_token_cost") or prompt
    hour = cost("cache_creation_input_token_cost", "_above_1hr")
    if hour is None:
        hour = max(written, 2 * prompt if vendor == "anthropic" else written)
    names = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
    return dict(zip(names, map(picos, (prompt, answer, read, written, hour))))


def service(model, vendor, name, tiers):
    """The prices of a service tier, or None where the list has none for each tier of the prompt's length."""
    entry = rates(model, vendor, service=f"_{name}")
    above = [(tokens, rates(model, vendor, f"_above_{tokens}k_tokens", f"_{name}")) for tokens in tiers]
    if entry is None or any(tier is None for _, tier in above):
        return None
    if above:
        entry["above"] = [{"tokens": tokens * 1000, **tier} for tokens, tier in above]
    return entry


def price(model):
    vendor = model["litellm_provider"]
    entry = rates(model, vendor)
    if entry is None:
        return None
    tiers = sorted(int(match[1]) for match in map(TIER.match, model) if match)
    above = [(tokens, rates(model, vendor, f"_above_{tokens}k_tokens")) for tokens in tiers]
    above = [{"tokens": tokens * 1000, **tier} for tokens, tier in above if tier]
    if above:
        entry["above"] = above
    services = {name: service(model, vendor, name, tiers) for name in SERVICES}
    services = {name: prices for name, prices in services.items() if prices}
    if services:
        entry["service"] = services
    if model.get("supports_reasoning"):
        # Anthropic's models reason if the request asks for it, unless they always do.
        asked = vendor == "anthropic" and not model.get("thinking_always_on")
        entry["reasoning"] = "asked" if asked else "always"
    searches = model.get("search_context_cost_per_query") or {}
    if searches:
        entry["search"] = picos(max(searches.values()))
    if isinstance(model.get("max_output_tokens"), int):
        entry["max_output_tokens"] = model["max_output_tokens"]
    return {"vendor": vendor, **entry}


def main():
    wanted = "litellm" + (f"=={sys.argv[1]}" if len(sys.argv) > 1 else "")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, wanted]
        subprocess.run(command, check=True)
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        version = wheel.name.split("-")[1]
        with zipfile.ZipFile(wheel) as package:
            text = package.read(LIST)
            licence = package.read(f"litellm-{version}.dist-info/licenses/LICENSE")
    models = json.loads(text, parse_float=decimal.Decimal)
    entries = {}
    for name, model in models.items():
        if model.get("litellm_provider") in VENDORS and model.get("mode") in ("chat", "responses"):
            entry = price(model)
            name = name.removeprefix(f"{model['litellm_provider']}/")
            # A model that is listed twice costs what the dearer line says.
            if entry and entry["output"] >= entries.get(name, entry)["output"]:
                entries[name] = entry
    head = {
        "source": f"litellm {version}, {LIST}",
        "source_sha256": hashlib.sha256(text).hexdigest(),
        "taken": datetime.date.today().isoformat(),
        "licence": "MIT, see LICENSE-litellm",
        "unit": "pico-dollars a token",
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries))
    HERE.mkdir(exist_ok=True)
    (HERE / "prices.json").write_text("\n".join(["{", *lines, '  "models": {', rows, "  }", "}", ""]))
    (HERE / "LICENSE-litellm").write_bytes(licence)
    print(f"{len(entries)} models from litellm {version}")


main()
