#!/usr/bin/env python3
"""The official Python clients, unmodified, against `forge serve`.

    run.py FORGE MODEL [--expect-text]

Starts the server on a free port and runs every check whose client is installed; one that is not is
named and skipped. Exit status: 0 all passed, 1 something failed, 77 no client is installed.
"""
import importlib
import json
import os
import signal
import subprocess
import sys

checks, failures, skipped = [], [], []


def check(*packages):
    def add(function):
        checks.append((function, packages))
        return function
    return add


class Server:
    def __init__(self, forge, model):
        self.process = subprocess.Popen([forge, "serve", model, "--port", "0", "--ctx", "2048", "--alias", "alias"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if " on http" not in line:
            raise SystemExit(f"the server did not get ready: {line!r}")
        self.url = line.split(" on ")[1].split(",")[0]
        self.model = line.split("ready: ")[1].split(" on ")[0]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


MESSAGES = [{"role": "system", "content": "Answer in one sentence."}, {"role": "user", "content": "What is the capital of France?"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@check("openai")
def openai_chat(s):
    import openai
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none")
    whole = client.chat.completions.create(model=s.model, messages=MESSAGES, temperature=0, max_tokens=100)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens > 0
    pieces, usage = [], None
    for chunk in client.chat.completions.create(model=s.model, messages=MESSAGES, temperature=0, max_tokens=100, stream=True,
                                                stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        pieces += [c.delta.content or "" for c in chunk.choices]
    assert "".join(pieces) == text, (pieces, text)
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens > 0
    with client.chat.completions.stream(model=s.model, messages=MESSAGES, temperature=0, max_tokens=100) as stream:
        assert stream.get_final_completion().choices[0].message.content == text
    some = client.chat.completions.create(model="alias", messages=MESSAGES, n=2, temperature=1, seed=3, max_tokens=5, logprobs=True, top_logprobs=2)
    assert len(some.choices) == 2 and len(some.choices[0].logprobs.content[0].top_logprobs) == 2
    stopped = client.chat.completions.create(model=s.model, messages=MESSAGES, temperature=0, max_tokens=100, stop=[text[4:8]])
    assert stopped.choices[0].message.content == text[:text.index(text[4:8])] and stopped.choices[0].finish_reason == "stop"
    return text


@check("openai")
def openai_others(s):
    import openai
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
    assert [m.id for m in client.models.list()] == [s.model] and client.models.retrieve(s.model).id == s.model
    whole = client.completions.create(model=s.model, prompt="Once upon a time", max_tokens=12, temperature=0)
    text = "".join(c.choices[0].text for c in client.completions.create(model=s.model, prompt="Once upon a time", max_tokens=12, temperature=0, stream=True))
    assert text == whole.choices[0].text
    for wrong, kind, field in (({"temperature": -1}, openai.BadRequestError, "temperature"), ({"model": "nothing"}, openai.NotFoundError, "model"),
                               ({"messages": []}, openai.BadRequestError, "messages")):
        try:
            client.chat.completions.create(**({"model": s.model, "messages": MESSAGES} | wrong))
        except kind as error:
            assert error.param == field, error
        else:
            raise AssertionError(f"{wrong} was answered")


@check("openai")
def openai_responses(s):
    import openai
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
    request = dict(model=s.model, instructions=MESSAGES[0]["content"], input=MESSAGES[1]["content"], temperature=0, max_output_tokens=100)
    whole = client.responses.create(**request)
    assert whole.output_text and whole.status == "completed" and whole.usage.output_tokens > 0
    with client.responses.stream(**request) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == whole.output_text == final.output_text, (text, whole.output_text)


def unit(vector):
    return abs(sum(x * x for x in vector) - 1) < 1e-3


@check("openai")
def openai_embeddings(s):
    import openai
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
    texts = ["The cat sat on the mat.", "A cat sits on a mat.", "Stock prices fell sharply."]
    answer = client.embeddings.create(model=s.model, input=texts, extra_body={"pooling": "mean"})   # the client asks for base64
    vectors = [d.embedding for d in answer.data]
    assert len(vectors) == 3 and all(map(unit, vectors)) and answer.usage.prompt_tokens > 10
    floats = client.embeddings.create(model=s.model, input=texts[0], encoding_format="float", extra_body={"pooling": "mean"}).data[0].embedding
    assert max(abs(a - b) for a, b in zip(floats, vectors[0])) < 1e-6
    def likeness(a, b):
        return sum(x * y for x, y in zip(a, b))
    assert likeness(vectors[0], vectors[1]) > likeness(vectors[0], vectors[2])
    short = client.embeddings.create(model=s.model, input=texts[0], dimensions=64).data[0].embedding
    assert len(short) == 64 and unit(short)
    try:
        client.embeddings.create(model=s.model, input="")
    except openai.BadRequestError as error:
        assert error.param == "input"
    else:
        raise AssertionError("an empty text was answered")


WEATHER_TOOL = {"name": "weather", "description": "Tells the weather of a city.", "parameters": WEATHER}


@check("openai")
def openai_tools(s):
    """What a client sends back after a call, in both APIs: the call and its result become part of the prompt."""
    import openai
    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
    tools = [{"type": "function", "function": WEATHER_TOOL}]
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = client.chat.completions.create(model=s.model, messages=asked, tools=tools, temperature=0, max_tokens=40)
    message = first.choices[0].message
    if not message.tool_calls:   # a small model may not call: then its call is made for it
        message = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}]}
        call = "call_1"
    else:
        call = message.tool_calls[0].id
    after = asked + [message, {"role": "tool", "tool_call_id": call, "content": "sunny, 21 degrees"}]
    whole = client.chat.completions.create(model=s.model, messages=after, tools=tools, temperature=0, max_tokens=40)
    assert whole.choices[0].message.content
    pieces = [c.delta.content or "" for chunk in client.chat.completions.create(model=s.model, messages=after, tools=tools, temperature=0, max_tokens=40, stream=True) for c in chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content
    assert whole.usage.prompt_tokens > first.usage.prompt_tokens
    answer = client.responses.create(model=s.model, temperature=0, max_output_tokens=40, tools=[{"type": "function", **WEATHER_TOOL}], input=asked + [
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Paris"}'}, {"type": "function_call_output", "call_id": "c1", "output": "sunny, 21 degrees"}])
    assert answer.output_text


@check("anthropic")
def anthropic_tools(s):
    import anthropic
    client = anthropic.Anthropic(base_url=s.url, api_key="none", max_retries=0)
    tools = [{"name": "weather", "description": "Tells the weather of a city.", "input_schema": WEATHER}]
    request = dict(model=s.model, max_tokens=40, tools=tools, extra_body={"temperature": 0}, messages=[
        {"role": "user", "content": "What is the weather in Paris?"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny, 21 degrees"}]}])
    whole = client.messages.create(**request)
    with client.messages.stream(**request) as stream:
        final = stream.get_final_message()
    assert [b.to_dict() for b in final.content] == [b.to_dict() for b in whole.content] and whole.content


@check("ollama")
def ollama_others(s):
    import ollama
    client = ollama.Client(host=s.url)
    texts = ["The cat sat on the mat.", "Stock prices fell sharply."]
    answer = client.embed(model=s.model, input=texts)
    assert len(answer.embeddings) == 2 and all(map(unit, answer.embeddings)) and answer.prompt_eval_count > 5
    old = client.embeddings(model=s.model, prompt=texts[0]).embedding
    assert max(abs(a - b) for a, b in zip(old, answer.embeddings[0])) < 1e-6
    assert client.pull(s.model).status == "success"
    assert [p.status for p in client.pull(s.model, stream=True)] == ["success"]
    for refused in (lambda: client.pull("nothing"), lambda: client.delete(s.model)):
        try:
            refused()
        except ollama.ResponseError as error:
            assert error.status_code == 501 and "started with" in error.error
        else:
            raise AssertionError("a store answered")
    assert len(client.list().models[0].digest) == 64 and client.ps().models[0].digest == client.list().models[0].digest
    messages = [{"role": "user", "content": "What is the weather in Paris?"}, {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Paris"}}}]},
                {"role": "tool", "tool_name": "weather", "content": "sunny, 21 degrees"}]
    tools = [{"type": "function", "function": WEATHER_TOOL}]
    options = {"temperature": 0, "num_predict": 40}
    whole = client.chat(model=s.model, messages=messages, tools=tools, options=options)
    parts = [p.message.content or "" for p in client.chat(model=s.model, messages=messages, tools=tools, options=options, stream=True)]
    assert whole.message.content and "".join(parts) == whole.message.content


@check("openai", "pydantic")
def openai_structured(s):
    import enum

    import openai
    import pydantic

    class Size(enum.Enum):
        small = "small"
        large = "large"

    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=30)
        population: int = pydantic.Field(ge=1000, le=99999999)
        size: Size
        rivers: list[str] = pydantic.Field(max_length=2)

    client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
    answer = client.chat.completions.parse(model=s.model, messages=MESSAGES, temperature=0, max_tokens=400, response_format=City)
    assert isinstance(answer.choices[0].message.parsed, City) and answer.choices[0].finish_reason == "stop", answer
    response = client.responses.parse(model=s.model, input=MESSAGES[1]["content"], temperature=0, max_output_tokens=400, text_format=City)
    assert isinstance(response.output_parsed, City), response
    with client.chat.completions.stream(model=s.model, messages=MESSAGES, temperature=0, max_tokens=400, response_format=City) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == answer.choices[0].message.parsed
    tool = openai.pydantic_function_tool(City, name="save_city")
    called = client.chat.completions.parse(model=s.model, messages=MESSAGES, temperature=0, max_tokens=400, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    call = called.choices[0].message.tool_calls[0]
    assert call.function.name == "save_city" and isinstance(call.function.parsed_arguments, City), called
    try:
        client.chat.completions.create(model=s.model, messages=MESSAGES, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"uniqueItems": True}}})
    except openai.BadRequestError as error:
        assert "uniqueItems" in error.message, error
    else:
        raise AssertionError("a schema that cannot be compiled was answered")


@check("anthropic")
def anthropic_messages(s):
    import anthropic
    client = anthropic.Anthropic(base_url=s.url, api_key="none", max_retries=0)
    request = dict(model=s.model, system="Answer in one sentence.", messages=MESSAGES[1:], max_tokens=100, extra_body={"temperature": 0})
    whole = client.messages.create(**request)
    text = whole.content[0].text
    assert text and whole.usage.output_tokens > 0 and whole.stop_reason in ("end_turn", "max_tokens")
    with client.messages.stream(**request) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(pieces) == text and final.content[0].text == text and final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    count = client.messages.count_tokens(model=s.model, system="Answer in one sentence.", messages=MESSAGES[1:])
    assert count.input_tokens == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
    try:
        client.messages.create(**(request | {"max_tokens": 0}))
    except anthropic.BadRequestError as error:
        assert "max_tokens" in str(error)
    else:
        raise AssertionError("max_tokens 0 was answered")
    return text


@check("openai", "anthropic", "ollama")
def protocols_agree(s):
    assert openai_chat(s) == anthropic_messages(s) == ollama_chat(s)


@check("ollama")
def ollama_chat(s):
    import ollama
    client = ollama.Client(host=s.url)
    options = {"temperature": 0, "num_predict": 100}
    whole = client.chat(model=s.model, messages=MESSAGES, options=options)
    text = whole.message.content
    parts = list(client.chat(model=s.model, messages=MESSAGES, options=options, stream=True))
    assert "".join(p.message.content for p in parts) == text and parts[-1].done and parts[-1].eval_count == whole.eval_count
    generated = client.generate(model=s.model, prompt=MESSAGES[1]["content"], system=MESSAGES[0]["content"], options=options)
    assert generated.response == text
    held = client.chat(model=s.model, messages=MESSAGES, options={"temperature": 0, "num_predict": 300},
                       format={"type": "object", "properties": {"capital": {"type": "string", "maxLength": 40}}, "required": ["capital"]})
    assert list(json.loads(held.message.content)) == ["capital"], held
    assert client.list().models[0].model == s.model and client.ps().models[0].model == s.model
    assert client.show(s.model).details.family
    try:
        client.chat(model="nothing", messages=MESSAGES)
    except ollama.ResponseError as error:
        assert error.status_code == 404
    else:
        raise AssertionError("an unknown model answered")
    return text


def main():
    forge, model = sys.argv[1], sys.argv[2]
    missing = set()
    for name in ("openai", "anthropic", "ollama"):
        try:
            importlib.import_module(name)
        except ImportError:
            missing.add(name)
            print(f"SKIPPED: the Python package {name} is not installed")
    if len(missing) == 3:
        return 77
    server = Server(forge, model)
    try:
        for function, packages in checks:
            if missing & set(packages):
                continue
            try:
                function(server)
                print(f"passed: {function.__name__}")
            except Exception as error:  # noqa: BLE001 - each is reported
                import traceback
                traceback.print_exc()
                failures.append(function.__name__)
                print(f"FAILED: {function.__name__}: {type(error).__name__}: {error}")
    finally:
        status = server.stop()
    if status != 0:
        failures.append(f"the server ended with {status} after SIGTERM")
    print("failed: " + ", ".join(failures) if failures else "all passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
