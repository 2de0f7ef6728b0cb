"""openai_client.py: the official OpenAI client for Python, unchanged, before `ebro serve` with the
demo model: chat, streams, tools, structured output, logprobs, choices, usage, errors. Speaks TAP.

EBRO: the program. What the answers hold in detail is tested elsewhere (tests/server/*.c); here the
client's own types must take them."""

import json
import os
import re
import signal
import subprocess
import sys
import traceback
import typing

import openai
import pydantic

KEY = "a-key-of-this-test"
ASK = "Remember: the code for Mira is 4821. The code for Tom is 1938. What is the code for Tom?"


class Server:
    """`ebro serve` on a port that is free, until the end of the block."""

    def __enter__(self):
        self.process = subprocess.Popen(
            [os.environ["EBRO"], "serve", "--port", "0", "--alias", "demo", "-c", "2048"],
            env=dict(os.environ, EBRO_API_KEY=KEY),
            stdout=subprocess.PIPE,
            text=True,
        )
        said = self.process.stdout.readline()
        match = re.match(r"listening on (http://127\.0\.0\.1:\d+) ", said)
        assert match, f"the server said {said!r}"
        self.address = match[1]
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.code = self.process.wait(60)
        finally:
            self.process.kill()


def same(have, want, what):
    assert have == want, f"{what}: {have!r}, not {want!r}"


def fails(kind, call, *parts):
    try:
        call()
    except kind as error:
        for part in parts:
            assert part in str(error), f"{part!r} is not in: {error}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def ask(client, text=ASK, **more):
    return client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": text}], **more
    )


# ---- the cases ----------------------------------------------------------------------------


def lists_models(client):
    models = client.models.list().data
    same([m.id for m in models], ["demo"], "models")
    same(client.models.retrieve("demo").id, "demo", "the model")


def chats(client):
    reply = ask(client)
    choice = reply.choices[0]
    same(choice.message.role, "assistant", "role")
    same(choice.message.content, "1938", "content")
    same(choice.finish_reason, "stop", "finish_reason")
    same(choice.message.tool_calls, None, "tool_calls")
    usage = reply.usage
    assert usage.prompt_tokens > 20 and usage.completion_tokens > 1, usage
    same(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens, "total_tokens")


def streams(client):
    text, roles, ends, usages = "", [], [], []
    for chunk in ask(client, stream=True, stream_options={"include_usage": True}):
        if chunk.usage:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            text += choice.delta.content or ""
            roles += [choice.delta.role] if choice.delta.role else []
            ends += [choice.finish_reason] if choice.finish_reason else []
    same(text, "1938", "the text")
    same((roles, ends, len(usages)), (["assistant"], ["stop"], 1), "roles, ends, usages")
    assert usages[0].completion_tokens > 1, usages


def streams_with_the_helper(client):
    with client.chat.completions.stream(
        model="demo", messages=[{"role": "user", "content": ASK}]
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    same("".join(deltas), "1938", "the deltas")
    same(final.choices[0].message.content, "1938", "the whole")


def leaves_a_stream(client):
    """One that is left is cancelled, and the next request is answered as ever."""
    stream = ask(client, stream=True, max_tokens=1000, extra_body={"ignore_eos": True})
    for _, _chunk in zip(range(3), stream):
        pass
    stream.close()
    chats(client)


def continues_texts(client):
    reply = client.completions.create(model="demo", prompt="The whale is", max_tokens=12)
    whole = reply.choices[0]
    same(whole.finish_reason, "length", "finish_reason")
    same(reply.usage.completion_tokens, 12, "completion_tokens")
    pieces = client.completions.create(
        model="demo", prompt="The whale is", max_tokens=12, stream=True
    )
    same("".join(p.choices[0].text for p in pieces if p.choices), whole.text, "the pieces")
    stopped = client.completions.create(
        model="demo", prompt="The whale is", max_tokens=12, stop=whole.text[4:9]
    )
    same(stopped.choices[0].text, whole.text[:4], "the text before a stop string")
    same(stopped.choices[0].finish_reason, "stop", "finish_reason")


class Step(pydantic.BaseModel):
    explanation: str = pydantic.Field(max_length=20)
    value: int = pydantic.Field(ge=0, le=9999)


class Answer(pydantic.BaseModel):
    steps: list[Step] = pydantic.Field(min_length=1, max_length=2)
    sure: bool


def parses_a_model(client):
    """The schema is pydantic's; the demo model knows nothing of it: the grammar alone makes it
    right."""
    for seed in range(3):
        reply = client.chat.completions.parse(
            model="demo",
            messages=[{"role": "user", "content": ASK}],
            response_format=Answer,
            temperature=1,
            seed=seed,
        )
        same(reply.choices[0].finish_reason, "stop", "finish_reason")
        parsed = reply.choices[0].message.parsed
        assert isinstance(parsed, Answer) and 1 <= len(parsed.steps) <= 2, parsed


def answers_in_json(client):
    schema = {
        "type": "object",
        "properties": {"code": {"type": "integer"}, "name": {"enum": ["Mira", "Tom"]}},
        "required": ["code", "name"],
        "additionalProperties": False,
    }
    reply = ask(
        client,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "code", "schema": schema, "strict": True},
        },
    )
    value = json.loads(reply.choices[0].message.content)
    same(sorted(value), ["code", "name"], "properties")
    assert isinstance(value["code"], int) and value["name"] in ("Mira", "Tom"), value
    reply = ask(client, response_format={"type": "json_object"}, max_tokens=200)
    if reply.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(reply.choices[0].message.content), dict)


class Weather(pydantic.BaseModel):
    """Tells the weather of a place."""

    place: str = pydantic.Field(max_length=24)
    days: int = pydantic.Field(ge=1, le=7)


class Time(pydantic.BaseModel):
    """Tells the time."""

    zone: typing.Literal["UTC", "CET", "PST"]


TOOLS = [
    openai.pydantic_function_tool(Weather, name="weather"),
    openai.pydantic_function_tool(Time, name="time"),
]
TYPES = {"weather": Weather, "time": Time}


def checked_calls(calls):
    for call in calls:
        same(call.type, "function", "type")
        assert call.id, "a call has no id"
        TYPES[call.function.name].model_validate_json(call.function.arguments)
    return [call.function.name for call in calls]


def calls_a_tool(client):
    for choice, more in (("required", {"parallel_tool_calls": False}), ("required", {})):
        reply = ask(client, tools=TOOLS, tool_choice=choice, temperature=1, seed=5, **more)
        same(reply.choices[0].finish_reason, "tool_calls", "finish_reason")
        names = checked_calls(reply.choices[0].message.tool_calls)
        assert names and (not more or len(names) == 1), names


def calls_the_named_tool(client):
    for name in TYPES:
        named = {"type": "function", "function": {"name": name}}
        reply = ask(client, tools=TOOLS, tool_choice=named)
        same(checked_calls(reply.choices[0].message.tool_calls), [name], "calls")


def streams_a_tool_call(client):
    with client.chat.completions.stream(
        model="demo",
        messages=[{"role": "user", "content": ASK}],
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "weather"}},
    ) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    same(checked_calls(message.tool_calls), ["weather"], "calls")
    assert isinstance(message.tool_calls[0].function.parsed_arguments, Weather)


def answers_after_a_tool(client):
    """The call and what came of it are a conversation that goes on."""
    named = {"type": "function", "function": {"name": "weather"}}
    messages = [{"role": "user", "content": ASK}]
    first = client.chat.completions.create(
        model="demo", messages=messages, tools=TOOLS, tool_choice=named
    )
    message = first.choices[0].message
    messages += [
        message.to_dict(),
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"},
    ]
    second = client.chat.completions.create(
        model="demo", messages=messages, tools=TOOLS, tool_choice="auto", max_tokens=20
    )
    message = second.choices[0].message
    assert message.content or message.tool_calls, second
    assert second.usage.prompt_tokens > first.usage.prompt_tokens, second.usage


def tells_probabilities(client):
    reply = ask(client, logprobs=True, top_logprobs=3)
    entries = reply.choices[0].logprobs.content
    same("".join(e.token for e in entries), "1938", "the tokens")
    for entry in entries:
        same(bytes(entry.bytes).decode(), entry.token, "bytes")
        same(len(entry.top_logprobs), 3, "top_logprobs")
        same(entry.top_logprobs[0].logprob, entry.logprob, "the likeliest, which is chosen")
        assert entry.logprob <= 0, entry


def gives_many_choices(client):
    reply = ask(client, n=2, temperature=1.5, seed=7, max_tokens=30)
    same([c.index for c in reply.choices], [0, 1], "choices")
    again = ask(client, n=2, temperature=1.5, seed=7, max_tokens=30)
    for one, two in zip(reply.choices, again.choices):
        same(one.message.content, two.message.content, "the same seed")


def reuses_the_first_turn(client):
    """All of the first turn but the token that had to be evaluated again."""
    messages = [
        {"role": "system", "content": "You keep codes. " * 20},
        {"role": "user", "content": ASK},
    ]
    first = client.chat.completions.create(model="demo", messages=messages)
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "What is the code for Mira?"},
    ]
    second = client.chat.completions.create(model="demo", messages=messages)
    cached = second.usage.prompt_tokens_details.cached_tokens
    print(f"# turn 1: {first.usage}; turn 2: {second.usage}")
    least = first.usage.prompt_tokens + first.usage.completion_tokens - 2
    assert least <= cached < second.usage.prompt_tokens, (least, cached, second.usage)


def refuses(client):
    fails(openai.NotFoundError, lambda: client.models.retrieve("nobody"), "nobody")
    other = {"model": "nobody", "messages": [{"role": "user", "content": "x"}]}
    error = fails(
        openai.NotFoundError, lambda: client.chat.completions.create(**other), "nobody"
    )
    same(error.code, "model_not_found", "code")
    error = fails(openai.BadRequestError, lambda: ask(client, temperature=9), "temperature")
    same(error.param, "temperature", "param")
    error = fails(openai.BadRequestError, lambda: ask(client, "word " * 4000), "2048")
    same(error.code, "context_length_exceeded", "code")
    fails(openai.BadRequestError, lambda: ask(client, extra_body={"messages": "none"}))
    stranger = client.with_options(api_key="a-wrong-key")
    error = fails(openai.AuthenticationError, lambda: ask(stranger))
    same(error.code, "invalid_api_key", "code")


CASES = (
    lists_models,
    chats,
    streams,
    streams_with_the_helper,
    leaves_a_stream,
    continues_texts,
    parses_a_model,
    answers_in_json,
    calls_a_tool,
    calls_the_named_tool,
    streams_a_tool_call,
    answers_after_a_tool,
    tells_probabilities,
    gives_many_choices,
    reuses_the_first_turn,
    refuses,
)


def main():
    failed = 0
    with Server() as server:
        client = openai.OpenAI(
            base_url=server.address + "/v1", api_key=KEY, timeout=60, max_retries=0
        )
        for number, case in enumerate(CASES, 1):
            name = f"{number} - openai {openai.__version__}: {case.__name__.replace('_', ' ')}"
            try:
                case(client)
                print(f"ok {name}", flush=True)
            except Exception:  # whatever it is, the other cases are tried
                failed += 1
                print(f"not ok {name}")
                for line in traceback.format_exc().splitlines():
                    print("# " + line)
    ended = len(CASES) + 1
    failed += server.code != 0
    print(f"{'not ok' if server.code else 'ok'} {ended} - the server ends with {server.code}")
    print(f"1..{ended}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
