"""A chat server within a program of your own, here without HTTP: two people talk at once.

    python serve.py MODEL_FOLDER
"""

import asyncio
import json
import sys

import moeflux.serve


async def talk(service: moeflux.serve.Service, name: str, prompt: str) -> str:
    """Prints a text while it is written."""
    body = {"prompt": prompt, "max_tokens": 24, "seed": 7, "stream": True}
    text = prompt
    async for piece in service.handle("POST", "/v1/completions", body):
        if piece.status != 200:  # errors are answers too, with OpenAI's body
            raise SystemExit(piece.body.decode())
        for line in piece.body.decode().splitlines():
            if line.startswith("data: {"):
                text += json.loads(line[len("data: "):])["choices"][0]["text"]
                print(f"{name}: {text[-50:]}")
    return text


async def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else "models/fable-20m"
    async with moeflux.serve.Service(model, context_length=512) as service:
        texts = await asyncio.gather(talk(service, "Ann", "Once upon a time"),
                                     talk(service, "Ben", "The old king"))
        print(*texts, service.health(), sep="\n")
        await service.drain()


asyncio.run(main())
