"""A service that plays a coding model: it answers the first question with a call that edits a file,
and the call's result with a text. Keeps every request it got, for a replay to a real server.

Speaks Anthropic's messages and OpenAI's responses, as far as a coding client listens.
"""

import http.server
import json
import threading


def sse(events):
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def message_events(blocks, reason):
    """Anthropic's stream of these blocks."""
    usage = {"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": 0,
             "cache_creation_input_tokens": 0}
    yield {"type": "message_start",
           "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
                       "content": [], "stop_reason": None, "stop_sequence": None,
                       "usage": usage}}
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta",
                                                          "text": block["text"]}
        else:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
           "usage": usage}
    yield {"type": "message_stop"}


def response_events(item):
    """The events of a response of one item that Codex waits for."""
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "scripted",
                "status": "completed", "output": [item], "usage": {
                    "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": 2}}
    yield {"type": "response.created", "sequence_number": 0, "response": response}
    yield {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
           "item": item}
    yield {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0,
           "item": item}
    yield {"type": "response.completed", "sequence_number": 3, "response": response}


class Script:
    """The answers to requests, and all that was asked."""

    def __init__(self, edit):
        self.edit = edit  # (tools of the request) -> (name, input) of the call
        self.requests = []
        self.lock = threading.Lock()

    def answer(self, path, body):
        with self.lock:
            self.requests.append((path, body))
        if path.endswith("/messages/count_tokens"):
            return "application/json", json.dumps({"input_tokens": 1})
        if path.endswith("/messages"):
            return "text/event-stream", sse(self.say_message(body))
        if path.endswith("/responses"):
            return "text/event-stream", sse(self.say_response(body))
        return "application/json", json.dumps({"object": "list", "data": [], "models": []})

    def say_message(self, body):
        tools = {tool["name"]: tool for tool in body.get("tools", [])}
        results = [block for message in body["messages"] if isinstance(message["content"], list)
                   for block in message["content"] if block["type"] == "tool_result"]
        if tools and not results:
            name, arguments = self.edit(tools)
            return message_events([{"type": "text", "text": "I write it."},
                                   {"type": "tool_use", "id": "toolu_1", "name": name,
                                    "input": arguments}], "tool_use")
        return message_events([{"type": "text", "text": "It is written."}], "end_turn")

    def say_response(self, body):
        tools = {tool["name"]: tool for tool in body.get("tools", []) if "name" in tool}
        results = [item for item in body["input"] if item.get("type") == "function_call_output"]
        if tools and not results:
            name, arguments = self.edit(tools)
            return response_events({"type": "function_call", "id": "fc_1", "call_id": "call_1",
                                    "name": name, "arguments": json.dumps(arguments),
                                    "status": "completed"})
        text = {"type": "output_text", "text": "It is written.", "annotations": []}
        return response_events({"type": "message", "id": "msg_1", "role": "assistant",
                                "status": "completed", "content": [text]})


class ScriptedService:
    """The script at a free port of the loopback interface."""

    def __init__(self, script):
        class Handler(http.server.BaseHTTPRequestHandler):
            def reply(self, kind, text):
                data = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self):
                size = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(size) or b"{}")
                self.reply(*script.answer(self.path.split("?")[0], body))

            def do_GET(self):
                self.reply(*script.answer(self.path.split("?")[0], {}))

            def do_HEAD(self):
                self.reply("text/plain", "")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
