"""A server that calls tools, sees images and thinks, as llama-server does with a model that can.

`python -m tests.helpers.children.talker PORT`. The models that tests can load can't do any of it,
so this answers in llama-server's shapes: thoughts under `reasoning_content`, calls with their
arguments as text, which in a stream comes in pieces. It fails at what isn't OpenAI's.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp import web

Body = Mapping[str, Any]


def reply_to(asked: Body) -> dict[str, Any]:
    """Return the message that answers a chat: what an image holds, a call, or a tool's result."""
    thoughts = asked.get("chat_template_kwargs", {}).get("enable_thinking")
    start = {"role": "assistant", **({"reasoning_content": "Well."} if thoughts else {})}
    last = asked["messages"][-1]
    if isinstance(last["content"], list):
        (image,) = (part["image_url"]["url"] for part in last["content"] if "image_url" in part)
        kind, _, data = image.partition(";base64,")
        size = len(base64.b64decode(data, validate=True))
        return {**start, "content": f"{kind.removeprefix('data:')} of {size} bytes"}
    if last["role"] == "tool":
        called = asked["messages"][-2]["tool_calls"]
        assert last["tool_call_id"] in [call["id"] for call in called]
        assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in called)
        return {**start, "content": f"It is {last['content']}."}
    if not asked.get("tools"):
        return {**start, "content": "Hello."}
    (tool,) = asked["tools"]
    arguments = json.dumps(dict.fromkeys(tool["function"]["parameters"]["properties"], 3))
    function = {"name": tool["function"]["name"], "arguments": arguments}
    call = {"id": "Xy12", "type": "function", "function": function}
    return {**start, "content": None, "tool_calls": [call]}


def deltas(message: Body) -> Iterator[Body]:
    """Yield the message in pieces."""
    yield {"role": "assistant", "content": None}
    if "reasoning_content" in message:
        yield {"reasoning_content": message["reasoning_content"]}
    for word in (message["content"] or "").split(" ") if message["content"] else ():
        yield {"content": f"{word} "}
    for index, call in enumerate(message.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        first = {**call["function"], "arguments": arguments[:1]}
        yield {"tool_calls": [{**call, "index": index, "function": first}]}
        for letter in arguments[1:]:
            yield {"tool_calls": [{"index": index, "function": {"arguments": letter}}]}


async def chat(request: web.Request) -> web.StreamResponse:
    """Answer a chat, whole or in a stream."""
    asked = await request.json()
    message = reply_to(asked)
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    if not asked.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response({"choices": [choice], "usage": usage})
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    for delta in (*deltas(message), None):
        choice = {"index": 0, "delta": delta or {}, "finish_reason": None if delta else reason}
        await stream.write(b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode())
    if asked.get("stream_options", {}).get("include_usage"):
        await stream.write(b"data: %b\n\n" % json.dumps({"choices": [], "usage": usage}).encode())
    await stream.write(b"data: [DONE]\n\n")
    return stream


async def healthy(_: web.Request) -> web.Response:
    """Be ready."""
    return web.json_response({"status": "ok"})


if __name__ == "__main__":
    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", chat), web.get("/health", healthy)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
