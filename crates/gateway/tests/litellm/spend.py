"""Prints LiteLLM's spend log, one line per call."""

import json

from litellm.integrations.custom_logger import CustomLogger


class Spend(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        entry = kwargs.get("standard_logging_object") or {}
        spend = {
            "call_id": kwargs.get("litellm_call_id"),
            "end_user": entry.get("end_user"),
            "metadata": (entry.get("metadata") or {}).get("spend_logs_metadata"),
            "input_tokens": entry.get("prompt_tokens"),
            "output_tokens": entry.get("completion_tokens"),
        }
        print("spend " + json.dumps(spend), flush=True)


spend = Spend()
