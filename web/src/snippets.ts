// Commands for other programs that reach this server, as they are pasted.

export interface Snippet { name: string; language: string; text: string; }

const quoted = (text: string) => `'${text.replace(/'/g, "'\\''")}'`;

export function snippets(origin: string, model: string, hasKey: boolean): Snippet[] {
  const base = `${origin}/v1`;
  const key = hasKey ? "YOUR_KEY" : "none";
  const header = hasKey ? ` -H 'Authorization: Bearer ${key}'` : "";
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Hello" }], max_tokens: 64 });
  return [
    { name: "curl", language: "sh", text: `curl -s ${base}/chat/completions${header} -H 'Content-Type: application/json' \\\n  -d ${quoted(body)}\n` },
    { name: "OpenAI's Python package", language: "python", text: `import openai

client = openai.OpenAI(base_url=${JSON.stringify(base)}, api_key="${key}")
answer = client.chat.completions.create(
    model=${JSON.stringify(model)}, max_tokens=64, messages=[{"role": "user", "content": "Hello"}])
print(answer.choices[0].message.content)
` },
    { name: "Claude Code", language: "sh", text: `ANTHROPIC_BASE_URL=${origin} ANTHROPIC_AUTH_TOKEN=${key} \\
  ANTHROPIC_MODEL=${quoted(model)} ANTHROPIC_DEFAULT_HAIKU_MODEL=${quoted(model)} claude\n` },
    { name: "Codex", language: "sh", text: `codex -c model=${quoted(model)} -c model_provider=local \\
  -c ${quoted(`model_providers.local={name="local", base_url="${base}", wire_api="responses"${hasKey ? ', env_key="MOEFLUX_KEY"' : ""}}`)}\n` },
    { name: "Ollama", language: "sh", text: `OLLAMA_HOST=${origin} ollama run ${quoted(model)}\n` },
    { name: "Open WebUI", language: "sh", text: `docker run -d -p 3000:8080 --add-host=host.docker.internal:host-gateway \\
  -e OPENAI_API_BASE_URL=${base.replace(/\/\/(localhost|127\.0\.0\.1)(?=[:/])/, "//host.docker.internal")} -e OPENAI_API_KEY=${key} \\
  ghcr.io/open-webui/open-webui:main\n# The server needs --host 0.0.0.0 with a key, and --allow-host host.docker.internal.\n` },
  ];
}
