#!/usr/bin/env python3
"""Writes tests/golden/output: what models of each output format generate, and what it says.

    tools/oracles/output_transcripts.py

Each format is an encoder here: a call's name and arguments to text, after the templates and
documents of the models that write it. The parser decodes; neither knows the other.
"""

import json
import os

WEATHER = ("get_weather", {"city": "Berlin", "days": 3})
TIME = ("get.time-2", {"zone": "UTC+1"})
ODD = ("write_file", {"path": "a b/ü.txt", "text": 'Grüße "世界" \\ 🙂\n\tif a < b: {x}\'s [1, 2]'})
TYPES = ("all_types", {"s": "12", "i": -7, "f": 2.5, "b": True, "z": None, "l": [1, "a", [False]],
                       "o": {"k": {"n": 1}}})
KINDS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null",
         list: "array", dict: "object"}


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def raw(value):
    return value if isinstance(value, str) else dumps(value)


def tagged(open_key, close_key, close_value, newline=""):
    def write(arguments):
        return "".join(open_key + k + close_key + newline + raw(v) + newline + close_value
                       for k, v in arguments.items())
    return write


def attribute_arguments(arguments):
    return "".join('<｜DSML｜parameter name="%s" string="%s">%s</｜DSML｜parameter>\n' % (
        k, "true" if isinstance(v, str) else "false", raw(v)) for k, v in arguments.items())


def compact(value):
    if isinstance(value, str):
        return '<|"|>' + value + '<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(k + ":" + compact(v) for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(compact, value)) + "]"
    return dumps(value)


NS = "]<]minimax[>["


def elements(value):
    """A value within its tags; null as a word, which the template leaves out."""
    if isinstance(value, dict):
        return "".join("%s<%s>%s%s</%s>" % (NS, k, elements(v), NS, k) for k, v in value.items())
    if isinstance(value, list):
        return "".join("%s<item>%s%s</item>" % (NS, elements(v), NS) for v in value)
    return raw(value)


def python_call(name, arguments):
    return name + "(" + ", ".join(k + "=" + repr(v) for k, v in arguments.items()) + ")"


def json_call(name, arguments, key="arguments"):
    return dumps({"name": name, key: arguments})


def hermes(calls):
    return "\n".join("<tool_call>\n%s\n</tool_call>" % json_call(*c) for c in calls)


def function_tags(calls):
    write = tagged("<parameter=", ">", "</parameter>\n", "\n")
    return "\n".join("<tool_call>\n<function=%s>\n%s</function>\n</tool_call>" % (n, write(a))
                     for n, a in calls)


def section(begin, end, between=""):
    def wrap(write):
        return lambda calls: begin + between.join(write(*c) for c in calls) + end
    return wrap


key_values = tagged("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n")
close_key_values = tagged("<arg_key>", "</arg_key><arg_value>", "</arg_value>")
hy_key_values = tagged("<arg_key:opensource>", "</arg_key:opensource>\n<arg_value:opensource>",
                       "</arg_value:opensource>\n")
invoke = tagged('<parameter name="', '">', "</parameter>\n")
step = tagged('<steptml:parameter name="', '">', "</steptml:parameter>")

def xtml_argument(key, value):
    return '<|open|>argument key="%s" type="%s"<|sep|>%s<|close|>argument<|sep|>' % (
        key, KINDS[type(value)], raw(value))


def xtml(calls):
    return "<|open|>tools<|sep|>" + "".join(
        '<|open|>call tool="%s" index="%d"<|sep|>%s<|close|>call<|sep|>' % (
            n, i + 1, "".join(xtml_argument(*item) for item in a.items()))
        for i, (n, a) in enumerate(calls)) + "<|close|>tools<|sep|>"


counter = "<|tool_call_begin|>functions.%s:%d<|tool_call_argument_begin|>%s<|tool_call_end|>"

THINK = ("<think>\n", "\n</think>\n\n")

# Name -> (reasoning markers, calls to text, what opens a call)
FORMATS = {
    "tagged_json": (THINK, hermes, "<tool_call>"),
    "tagged_json_response": (THINK, hermes, "<tool_call>"),
    "function_tags": (THINK, function_tags, "<tool_call>"),
    "fenced_json": (THINK, section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "\n")(
        lambda n, a: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>%s\n```json\n%s\n```"
        "<｜tool▁call▁end｜>" % (n, dumps(a))), "<｜tool▁calls▁begin｜>"),
    "separated_json": (THINK, section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")(
        lambda n, a: "<｜tool▁call▁begin｜>%s<｜tool▁sep｜>%s<｜tool▁call▁end｜>" % (n, dumps(a))),
        "<｜tool▁calls▁begin｜>"),
    "attribute_tags": (THINK, section("<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>")(
        lambda n, a: '<｜DSML｜invoke name="%s">\n%s</｜DSML｜invoke>\n' % (
            n, attribute_arguments(a))), "<｜DSML｜function_calls>"),
    "key_value_tags": (("\n<think>", "</think>\n"), lambda calls: "\n".join(
        "<tool_call>%s\n%s</tool_call>" % (n, key_values(a)) for n, a in calls), "<tool_call>"),
    "separated_key_value_tags": (THINK, section("<tool_calls>\n", "</tool_calls>")(
        lambda n, a: "<tool_call>%s<tool_sep>\n%s</tool_call>\n" % (n, close_key_values(a))),
        "<tool_calls>"),
    "numbered_names": (THINK, lambda calls: "<|tool_calls_section_begin|>" + "".join(
        counter % (n, i, dumps(a)) for i, (n, a) in enumerate(calls)) +
        "<|tool_calls_section_end|>", "<|tool_calls_section_begin|>"),
    "invoke_tags": (THINK, section("<minimax:tool_call>\n", "</minimax:tool_call>")(
        lambda n, a: '<invoke name="%s">\n%s</invoke>\n' % (n, invoke(a))),
        "<minimax:tool_call>"),
    "wrapped_invoke_tags": (THINK, section("<dots_function_call>\n", "</dots_function_call>")(
        lambda n, a: '<invoke name="%s">\n%s</invoke>\n' % (n, invoke(a))),
        "<dots_function_call>"),
    "separated_tags": (("<|open|>think<|sep|>", "<|close|>think<|sep|>"), xtml,
                       "<|open|>tools<|sep|>"),
    "prefixed_invoke_tags": (THINK, section("<｜tool_calls_begin｜>\n", "<｜tool_calls_end｜>")(
        lambda n, a: '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="%s">%s'
        "</steptml:invoke><｜tool_call_end｜>\n" % (n, step(a))), "<｜tool_calls_begin｜>"),
    "element_tags": (("<mm:think>", "</mm:think>"), section(
        NS + "<tool_call>\n", NS + "</tool_call>")(
        lambda n, a: '%s<invoke name="%s">%s%s</invoke>\n' % (NS, n, elements(a), NS)),
        NS + "<tool_call>"),
    "suffixed_key_value_tags": (("<think:opensource>", "</think:opensource>"), section(
        "<tool_calls:opensource>\n", "</tool_calls:opensource>")(
        lambda n, a: "<tool_call:opensource>%s<tool_sep:opensource>\n%s"
        "</tool_call:opensource>\n" % (n, hy_key_values(a))), "<tool_calls:opensource>"),
    "action_lists": (("<|START_THINKING|>", "<|END_THINKING|>"), lambda calls:
                     "<|START_ACTION|>[\n    " + ",\n    ".join(
                         dumps({"tool_call_id": str(i), "tool_name": n, "parameters": a})
                         for i, (n, a) in enumerate(calls)) + "\n]<|END_ACTION|>",
                     "<|START_ACTION|>"),
    "id_before_name": (("<|think|>", "<|end|><|begin|>assistant"), lambda calls:
                       "<|tool_calls|>" + "".join(
                           "<|tool_call:begin|>%s<|tool_call:name|>%s<|tool_call:args|>%s"
                           "<|tool_call:end|>" % ("a1b2c3d4e%d" % i, n, dumps(a))
                           for i, (n, a) in enumerate(calls)) + "<|calls|>", "<|tool_calls|>"),
    "compact_calls": (("<|channel>thought\n", "<channel|>"), lambda calls: "".join(
        "<|tool_call>call:%s%s<tool_call|>" % (n, compact(a)) for n, a in calls), "<|tool_call>"),
    "bracket_markers": (("[THINK]", "[/THINK]"), lambda calls: "".join(
        "[TOOL_CALLS]%s[ARGS]%s" % (n, dumps(a)) for n, a in calls), "[TOOL_CALLS]"),
    "python_tag": (None, lambda calls: "<|python_tag|>" + "; ".join(
        json_call(n, a, "parameters") for n, a in calls), "<|python_tag|>"),
    "call_lists": (THINK, lambda calls: "<|tool_call_start|>[" + ", ".join(
        python_call(*c) for c in calls) + "]<|tool_call_end|>", "<|tool_call_start|>"),
}


def want_calls(calls):
    return [["call", n, a] for n, a in calls]


def usual(name):
    """The texts that every format goes through."""
    reasoning, write, opener = FORMATS[name]
    calls = [WEATHER, TIME]
    hello = "Grüße, 世界 🙂. 1 < 2 > 0, [x] {y}: </b> `<a>`"
    yield "no call", "", hello, [["content", hello]]
    yield "call", "", "I look.\n\n" + write([WEATHER]), [
        ["content", "I look."]] + want_calls([WEATHER])
    yield "two calls", "", write(calls), want_calls(calls)
    yield "odd text", "", write([ODD]), want_calls([ODD])
    yield "types", "", write([TYPES]), want_calls([TYPES])
    yield "no arguments", "", write([("now", {})]), want_calls([("now", {})])
    yield "text around", "", "One. " + write([WEATHER]) + "\nTwo.", [
        ["content", "One."]] + want_calls([WEATHER]) + [["content", "\nTwo."]]
    whole = write([WEATHER])
    yield "cut off", "", whole[:whole.index("Ber") + 3], [["cut", WEATHER[0]]]
    opened = "A call begins with %s and that is all." % opener
    yield "malformed", "", opened, [["content", opened]]
    yield "ends at the opener", "", "Now " + opener, [["content", "Now"]]
    if not reasoning:
        return
    begin, end = reasoning
    yield "reasoning", "", begin + "Hm, 世界.\n\nSo." + end + "Yes.", [
        ["reasoning", "Hm, 世界.\n\nSo."], ["content", "Yes."]]
    yield "reasoning, text, calls", "", begin + "Hm." + end + "Yes.\n" + write(calls), [
        ["reasoning", "Hm."], ["content", "Yes."]] + want_calls(calls)
    yield "call in reasoning", "", begin + "Hm.\n" + write([WEATHER]), [
        ["reasoning", "Hm."]] + want_calls([WEATHER])
    yield "opener in reasoning", "", begin + opened + end + "Yes.", [
        ["reasoning", opened], ["content", "Yes."]]
    yield "starts inside", "<|assistant|>" + begin, "Hm." + end + write([WEATHER]), [
        ["reasoning", "Hm."]] + want_calls([WEATHER])
    yield "prompt closed it", "<|assistant|>" + begin + end, "Yes.", [["content", "Yes."]]
    yield "second closer", "", begin + "Hm." + end + end.strip() + "\n\nYes.", [
        ["reasoning", "Hm."], ["content", "Yes."]]
    yield "reasoning cut off", "", begin + "Hm, so", [["reasoning", "Hm, so"]]


CHANNEL_CALL = "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>%s<|call|>"


def channels():
    analysis = "<|channel|>analysis<|message|>Hm, 世界.<|end|><|start|>assistant"
    said = [["reasoning", "Hm, 世界."]]
    tail = "<|end|><|start|>assistant"
    call = CHANNEL_CALL % (WEATHER[0], dumps(WEATHER[1]))
    final = "<|channel|>final<|message|>Yes 🙂."
    yield "final", tail, final + "<|return|>", [["content", "Yes 🙂."]]
    yield "analysis and final", tail, analysis + final, said + [["content", "Yes 🙂."]]
    yield "call", tail, analysis + call, said + want_calls([WEATHER])
    yield "two calls", tail, call + "<|start|>assistant" + CHANNEL_CALL % (
        TIME[0], dumps(TIME[1])), want_calls([WEATHER, TIME])
    yield "recipient before channel", tail, (
        " to=functions.f<|channel|>commentary json<|message|>{}<|call|>"), want_calls([("f", {})])
    yield "call on the analysis channel", tail, (
        "<|channel|>analysis to=browser.search code<|message|>{\"q\": 1}<|call|>"), want_calls(
            [("browser.search", {"q": 1})])
    yield "no recipient", tail, "<|channel|>commentary<|message|>I will look.<|end|>" + \
        "<|start|>assistant" + call, [["content", "I will look."]] + want_calls([WEATHER])
    yield "odd text", tail, CHANNEL_CALL % (ODD[0], dumps(ODD[1])), want_calls([ODD])
    yield "types", tail, CHANNEL_CALL % (TYPES[0], dumps(TYPES[1])), want_calls([TYPES])
    yield "cut off", tail, call[:call.index("Ber") + 3], [["cut", WEATHER[0]]]
    yield "closer missing", tail, call.replace("<|call|>", ""), want_calls([WEATHER])
    yield "no header", tail, "Just text.", [["content", "Just text."]]
    yield "no JSON", tail, "<|channel|>commentary to=functions.f<|message|>print(1)<|call|>", [
        ["content", "<|channel|>commentary to=functions.f<|message|>print(1)"]]
    yield "prompt began the final", tail + "<|channel|>final<|message|>", "Yes.", [
        ["content", "Yes."]]
    yield "end missing", tail, "<|channel|>analysis<|message|>Hm." + final, [
        ["reasoning", "Hm."], ["content", "Yes 🙂."]]


def atem(name, arguments):
    return '<atem:function_calls>\n<atem:invoke name="%s">\n%s</atem:invoke>\n' \
        "</atem:function_calls>" % (name, tagged('<atem:parameter name="', '">',
                                                 "</atem:parameter>\n")(arguments))


def addressed():
    tail, again = "<|eot|><|start|>assistant", "<|eom|><|start|>assistant"
    thought = " to=self<|message|>Hm, 世界." + again
    said = [["reasoning", "Hm, 世界."]]
    final = " to=user<|message|>Yes 🙂."
    call = " to=%s<|message|>%s" % (WEATHER[0], atem(*WEATHER))
    yield "final", tail, final + "<|eot|>", [["content", "Yes 🙂."]]
    yield "reasoning and final", tail, thought + final + "<|eot|>", said + [["content", "Yes 🙂."]]
    yield "call", tail, thought + call + "<|eot|>", said + want_calls([WEATHER])
    yield "two calls", tail, call + again + " to=%s<|message|>" % TIME[0] + atem(*TIME), want_calls(
        [WEATHER, TIME])
    yield "text and call", tail, " to=user<|message|>I look." + again + call, [
        ["content", "I look."]] + want_calls([WEATHER])
    yield "call to the user", tail, " to=user<|message|>I look.\n" + atem(*WEATHER), [
        ["content", "I look."]] + want_calls([WEATHER])
    yield "call in reasoning", tail, " to=self<|message|>Like " + atem("f", {}) + "." + again + \
        final, [["reasoning", "Like " + atem("f", {}) + "."], ["content", "Yes 🙂."]]
    yield "odd text", tail, " to=x<|message|>" + atem(*ODD), want_calls([ODD])
    yield "types", tail, " to=x<|message|>" + atem(*TYPES), want_calls([TYPES])
    yield "no header", tail, "Just text.", [["content", "Just text."]]
    yield "cut off", tail, call[:call.index("Ber") + 3], [["cut", WEATHER[0]]]
    yield "prompt began the final", tail + " to=user<|message|>", "Yes.", [["content", "Yes."]]
    yield "prompt began reasoning", tail + " to=self<|message|>", "Hm." + again + final, [
        ["reasoning", "Hm."], ["content", "Yes 🙂."]]


def invoke_json(name, arguments):
    return "<|message_model|>%s<|content_invoke_tool_json|>%s<|end_message|>" % (
        name, json.dumps({"name": name, "args": arguments}, ensure_ascii=False,
                         separators=(",", ":")))


def typed():
    tail, end = "<|end_message|>", "<|content_model_end_sampling|>"
    thought = "<|message_model|><|content_thinking|>Hm, 世界.<|end_message|>"
    said = [["reasoning", "Hm, 世界."]]
    final = "<|message_model|><|content_text|>Yes 🙂.<|end_message|>"
    calls = invoke_json(*WEATHER) + invoke_json(*TIME)
    yield "final", tail, final + end, [["content", "Yes 🙂."]]
    yield "reasoning and final", tail, thought + final + end, said + [["content", "Yes 🙂."]]
    yield "call", tail, thought + invoke_json(*WEATHER) + end, said + want_calls([WEATHER])
    yield "text and calls", tail, final + calls + end, [["content", "Yes 🙂."]] + want_calls(
        [WEATHER, TIME])
    yield "odd text", tail, invoke_json(*ODD), want_calls([ODD])
    yield "types", tail, invoke_json(*TYPES), want_calls([TYPES])
    yield "no name in the header", tail, invoke_json(*WEATHER).replace(
        "|>get_weather<", "|><", 1), want_calls([WEATHER])
    yield "no header", tail, "Just text.", [["content", "Just text."]]
    whole = invoke_json(*WEATHER)
    yield "cut off", tail, whole[:whole.index("Ber") + 3], [["cut", WEATHER[0]]]
    yield "prompt began the text", tail + "<|message_model|><|content_text|>", "Yes.", [
        ["content", "Yes."]]


MESSAGES = {"channels": channels, "addressed_invoke_tags": addressed, "typed_messages": typed}

SPECIAL = {
    "separated_tags": [
        ["answer in a channel", "", "<|open|>response<|sep|>Yes.<|close|>response<|sep|>"
         + xtml([WEATHER]) + "<|close|>message<|sep|>",
         [["content", "Yes."]] + want_calls([WEATHER])],
        ["closer in a value", "", xtml([("f", {"a": "x<|close|>argument<|sep|>y"})]),
         want_calls([("f", {"a": "x<|close|>argument<|sep|>y"})])],
        ["section's opener missing", "", xtml([WEATHER]).replace("<|open|>tools<|sep|>", ""),
         want_calls([WEATHER])],
    ],
    "tagged_json": [
        ["arguments first", "", '<tool_call>{"arguments": {"a": [1]}, "name": "f"}</tool_call>',
         want_calls([("f", {"a": [1]})])],
        ["JSON in JSON", "", '<tool_call>{"name":"f","arguments":"{\\"a\\": 1}"}</tool_call>',
         want_calls([("f", {"a": 1})])],
        ["marker in a string", "",
         '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>',
         want_calls([("f", {"a": "</tool_call>"})])],
        ["closer missing", "", '<tool_call>{"name": "f", "arguments": {"a": 1}}',
         want_calls([("f", {"a": 1})])],
        ["no name", "", '<tool_call>{"arguments": {}}</tool_call>',
         [["content", '<tool_call>{"arguments": {}}</tool_call>']]],
        ["broken arguments", "", '<tool_call>{"name": "f", "arguments": {"a" 1}}</tool_call>',
         [["cut", "f"], ["content", "1}}"]]],
        ["the prompt began the call", '<tool_call>\n{"name": "f", "arguments": ', '{"a": 1}}',
         want_calls([("f", {"a": 1})])],
    ],
    "tagged_json_response": [
        ["response tags", "", "<think>\nHm.\n</think>\n\n<response>\nYes.\n</response>\n",
         [["reasoning", "Hm."], ["content", "Yes."]]],
    ],
    "function_tags": [
        ["section missing", "", "<function=f>\n<parameter=s>\n1\n</parameter>\n</function>",
         want_calls([("f", {"s": "1"})])],
        ["parameter closer missing", "",
         "<tool_call>\n<function=f>\n<parameter=s>\nx\n<parameter=t>\ny\n</function>\n</tool_call>",
         want_calls([("f", {"s": "x", "t": "y"})])],
        ["call closer missing", "",
         "<tool_call><function=f><parameter=s>x</parameter></tool_call>",
         want_calls([("f", {"s": "x"})])],
        ["lines of a value", "",
         "<tool_call>\n<function=f>\n<parameter=s>\n\n a\n\n</parameter>\n</function>\n"
         "</tool_call>",
         want_calls([("f", {"s": "\n a\n"})])],
        ["JSON instead", "", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
         want_calls([("f", {"a": 1})])],
        ["wrong type", "", "<tool_call><function=all_types><parameter=i>many</parameter>"
         "<parameter=b>True</parameter><parameter=l>['a', None]</parameter></function></tool_call>",
         want_calls([("all_types", {"i": "many", "b": True, "l": ["a", None]})])],
    ],
    "fenced_json": [
        ["label missing", "", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```\n"
         '{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>', want_calls([("f", {"a": 1})])],
        ["fence missing", "", '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{"a": 1}<｜tool▁call▁end｜>',
         want_calls([("f", {"a": 1})])],
    ],
    "attribute_tags": [
        ["a space before names", "", '<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n'
         '<｜DSML｜ parameter name="a" string="false">[1]</｜DSML｜ parameter>\n'
         "</｜DSML｜ invoke>\n</｜DSML｜ calls>", want_calls([("f", {"a": [1]})])],
        ["newer tags", "", '<｜DSML｜ tool_calls>\n<｜DSML｜ invoke name="f">\n<｜DSML｜ parameter '
         'name="s" string="true">1</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ tool_calls>',
         want_calls([("f", {"s": "1"})])],
        ["JSON body", "", '<｜DSML｜tool_calls><｜DSML｜invoke name="f">{"a": 1}</｜DSML｜invoke>'
         "</｜DSML｜tool_calls>", want_calls([("f", {"a": 1})])],
    ],
    "key_value_tags": [
        ["no newlines", "", "<tool_call>f<arg_key>a</arg_key><arg_value>[1]</arg_value></tool_call>"
         "<tool_call>g</tool_call>", want_calls([("f", {"a": [1]}), ("g", {})])],
    ],
    "numbered_names": [
        ["no section, bare name", "",
         "<|tool_call_begin|>f:12<|tool_call_argument_begin|>{}<|tool_call_end|>",
         want_calls([("f", {})])],
    ],
    "invoke_tags": [
        ["other quotes", "", "<minimax:tool_call><invoke name='f'></invoke><invoke name=g>"
         "<parameter name=s>1</parameter></invoke></minimax:tool_call>",
         want_calls([("f", {}), ("g", {"s": "1"})])],
    ],
    "element_tags": [
        ["elements in elements", "",
         NS + "<tool_call>" + NS + '<invoke name="f">' + NS + "<o>\n" + NS + "<a>1" + NS + "</a>\n"
         + NS + "<b>" + NS + "<item>x" + NS + "</item>" + NS + "<item>" + NS + "<c>true" + NS
         + "</c>" + NS + "</item>" + NS + "</b>" + NS + "</o>" + NS + "</invoke>" + NS
         + "</tool_call>",
         want_calls([("f", {"o": {"a": 1, "b": ["x", {"c": True}]}})])],
        ["another closer", "", NS + '<tool_call>' + NS + '<invoke name="f">' + NS + "<s>x" + NS
         + "</t>" + NS + "</invoke>", [["cut", "f"], ["content", "t>"]]],
    ],
    "action_lists": [
        ["answer tags", "", "<|START_THINKING|>Hm.<|END_THINKING|><|START_TEXT|>Yes.<|END_TEXT|>",
         [["reasoning", "Hm."], ["content", "Yes."]]],
    ],
    "id_before_name": [
        ["a turn for each part", "<|begin|>assistant", "<|think|>Hm.<|end|><|begin|>assistant"
         "<|content|>Yes.<|end|>", [["reasoning", "Hm."], ["content", "Yes."]]],
        ["id missing", "", "<|tool_call:begin|>f<|tool_call:args|>{}<|tool_call:end|>",
         want_calls([("f", {})])],
    ],
    "compact_calls": [
        ["bare call", "", 'call:f{a:1,b:<|"|>x<|"|>}', want_calls([("f", {"a": 1, "b": "x"})])],
    ],
    "bracket_markers": [
        ["list", "", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, '
         '{"name": "g", "arguments": {}}]', want_calls([("f", {"a": 1}), ("g", {})])],
        ["id", "", "[TOOL_CALLS]f[CALL_ID]abc123DEF[ARGS]{}", want_calls([("f", {})])],
    ],
    "python_tag": [
        ["bare JSON", "", '{"type": "function", "name": "f", "parameters": {"a": "1"}}\n',
         want_calls([("f", {"a": "1"})])],
        ["bare list", "", "[f(a=1, b='x', c=[True, None], d={'k': 1.5}), g()]",
         want_calls([("f", {"a": 1, "b": "x", "c": [True, None], "d": {"k": 1.5}}), ("g", {})])],
        ["list with text behind", "", "[f(a=1)] is a call.", [["content", "[f(a=1)] is a call."]]],
        ["other JSON", "", '{"name": "Ann", "age": 7}', [["content", '{"name": "Ann", "age": 7}']]],
        ["other list", "", "[1, 2]", [["content", "[1, 2]"]]],
        ["bare call cut off", "", '{"name": "f", "parameters": {"a',
         [["content", '{"name": "f", "parameters": {"a']]],
    ],
    "call_lists": [
        ["JSON list", "", '<|tool_call_start|>[{"name": "f", "arguments": {"a": 1}}]'
         "<|tool_call_end|>", want_calls([("f", {"a": 1})])],
    ],
}


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    properties = {k: {"type": KINDS[type(v)]} for k, v in TYPES[1].items()}
    weather = {"city": {"type": "string"}, "days": {"type": "integer"}}
    tools = [{"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": p}}}
        for name, p in ((TYPES[0], properties), (WEATHER[0], weather),
                        (ODD[0], {"text": {"type": "string"}}), (TIME[0], {}))]
    for name in list(FORMATS) + list(MESSAGES):
        cases = list(MESSAGES[name]() if name in MESSAGES else usual(name)) + SPECIAL.get(name, [])
        with open(os.path.join(root, "tests", "golden", "output", name + ".json"), "w",
                  encoding="utf-8") as file:
            json.dump({"tools": tools, "transcripts": [
                dict(zip(("name", "prompt_tail", "text", "want"), case)) for case in cases]},
                file, ensure_ascii=False, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
