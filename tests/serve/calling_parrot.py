"""A parrot that greets and makes two calls at once when it is asked for "both". It says "matched"
where the result of the first one is that of Paris, fills a gap, and writes "city" as JSON and
note.txt as aider reads files.
"""

import parrot

SCRIPTS = {
    "both": ["<tool_call>\n", '{"name": "look", "arguments": {"city": "Paris"}}',
             "\n</tool_call>\n<tool_call>\n", '{"name": "rain", "arguments": {"city": "Oslo"}}',
             "\n</tool_call>"],
    "matched": ["matched"], "mixed": ["mixed up"], "hello": ["Hello", " there"],
    "city": ['{"city":', ' "Oslo"}'], "fim_middle": ["return", " a + b"],
    "note": ["note.txt\n```\nthe fox", " sleeps\n```"]}
# "matched" where the result of the first call is that of Paris.
TEMPLATE = """\
{%- set ns = namespace(first=none, result=none, note=false) -%}
{%- for m in messages %}{% if m.role == "user" and "Write note.txt" in m.content -%}
{% set ns.note = true %}{% endif %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}
</tool_call>{% if ns.first is none %}{% set ns.first = c.id %}{% endif %}{% endfor %}<|im_end|>
{% if m.role == "tool" and ns.first and m.tool_call_id == ns.first -%}
{% set ns.result = m.content %}{% endif %}{% endfor -%}
{% if tools %}{{ tools|tojson }}{% endif -%}
{% if add_generation_prompt %}<|im_start|>assistant
{% set last = messages[-1] -%}
{% if last.role == "tool" -%}
{% if ns.result and "Paris" in ns.result %}<|matched|>{% else %}<|mixed|>{% endif -%}
{% elif last.content == "both" %}<|both|>{% elif last.content == "city" %}<|city|>
{%- elif ns.note %}<|note|>{% else %}<|hello|>{% endif %}{% endif %}"""



def write(folder, context=4096):
    """It, as a model in `folder`."""
    parrot.write(folder, SCRIPTS, TEMPLATE, ["<|fim_prefix|>", "<|fim_suffix|>"], context)
