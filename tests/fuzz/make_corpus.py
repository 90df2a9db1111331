#!/usr/bin/env python3
"""Writes the inputs of tests/fuzz/corpus that people thought of. Those that libFuzzer found, found-*, stay as they are.

usage: tests/fuzz/make_corpus.py
"""
import base64
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus"
STEP = ROOT / "tests/resume/fixtures/format-1/step-2"


def put(target, name, content):
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def changed(text, before, after):
    assert before in text, before
    return text.replace(before, after, 1)


def make_manifests():
    text = (STEP / "attempt-0001-manifest.json").read_text()
    body = text[text.index('"manifest":') + len('"manifest":'):-2]
    put("manifest", "whole", body)
    changes = {
        "escape": ('"requires":[]', '"requires":["\\u001b[31mteleport"]'),
        "nested": ('"requires":[]', '"requires":' + "[" * 2000 + "]" * 2000),
        "unknown-key": ('"requires":[]', '"requires":[],"later":{"a":[1,2,{"b":null}]}'),
        "repeated-key": ('"format":1', '"format":1,' + '"attempt":2,' * 200 + '"format":1'),
        "negative": ('"step":2', '"step":-2'),
        "large": ('"step":2', '"step":9223372036854775808'),
        "overflow": ('"loss_scale":1024.0', '"loss_scale":1e999'),
        "parent": ("attempt-0001-rank-00000.safetensors", "../../etc/passwd"),
        "absolute": ("attempt-0001-rank-00000.safetensors", "/etc/passwd"),
        "many-lists": ('"lineage":[', '"lineage":[' + "{},[]," * 300),
    }
    for name, (before, after) in changes.items():
        put("manifest", name, changed(body, before, after))
    config = json.loads(body)["config"]
    put("manifest", "config", config)
    for name, (before, after) in {
        "config-layers": ("num_hidden_layers = 1", "num_hidden_layers = 16384"),
        "config-schedule-file": ('pipeline_parallel_schedule_csv = ""', 'pipeline_parallel_schedule_csv = "/etc/passwd"'),
        "config-model-path": ('model_type = "llama"', 'path = "/etc"'),
        "config-nan": ("max_norm = 1", "max_norm = nan"),
        "config-long-key": ("max_norm = 1", "m" * 3000 + " = 1"),
        "config-nested": ("max_norm = 1", "max_norm = " + "[" * 1000),
    }.items():
        put("manifest", name, changed(config, before, after))


def header_and_data(tensors):
    """Of [(name, dtype, shape, bytes)], in this order."""
    header, data = {}, b""
    for name, dtype, shape, values in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    return json.dumps(header, separators=(",", ":")).encode(), data


def floats(count):
    return struct.pack(f"<{count}f", *(0.5 + i for i in range(count)))


def halves(count):
    return struct.pack(f"<{count}H", *(0x3F80 + i for i in range(count)))


def make_state_files():
    vector = ("weight/v@0:10", "F32", [10], floats(10))
    inputs = {
        "whole": [("weight/m@0:6,0:4", "F32", [6, 4], floats(24)), vector,
                  ("exp_avg/m@0:6,0:4", "BF16", [6, 4], halves(24)), ("exp_avg/v@0:10", "BF16", [10], halves(10))],
        "three-rectangles": [("weight/m@0:1,1:4", "F32", [1, 3], floats(3)), ("padding/12", "U8", [4], b"\0" * 4),
                             ("weight/m@1:5,0:4", "F32", [4, 4], floats(16)), vector],
        "overlap": [("weight/m@0:4,0:4", "F32", [4, 4], floats(16)), ("weight/m@2:4,0:4", "F32", [2, 4], floats(8)), vector],
        "outside": [("weight/m@4:8,0:6", "F32", [4, 6], floats(24)), vector],
        "overflow": [("weight/m@0:9223372036854775807,0:9223372036854775807", "F32", [1], floats(1)), vector],
        "minus-one": [("weight/m@0:6148914691236517205,0:3", "F32", [1], floats(1)), vector],
        "vector-of-a-matrix": [("weight/m@0:24", "F32", [24], floats(24)), vector],
        "integers": [("weight/m@0:6,0:4", "I32", [6, 4], floats(24)), vector],
        "unknown-format": [("weight/m@0:6,0:4", "F8_E4M3", [6, 4], b"\0" * 24), vector],
        "nan": [("weight/m@0:6,0:4", "F32", [6, 4], b"\0\0\xc0\x7f" * 24), vector],
        "escape": [("weight/m@\x1b[31m", "F32", [1], floats(1)), vector],
    }
    for name, tensors in inputs.items():
        header, data = header_and_data(tensors)
        put("state_file", name, header + b"\n%\n" + data)
    header, data = header_and_data(inputs["whole"])
    put("state_file", "no-digests", b"!" + header + b"\n%\n" + data)
    blocks = b'!{"__metadata__":{"echelon.block_bytes":"1","echelon.xxh3_128":"' + b"0" * 32 * len(data) + b'"},'
    put("state_file", "small-blocks", blocks + header[1:] + b"\n%\n" + data)
    put("state_file", "no-data", header + b"\n%\n")


def llama(extra):
    shapes = {"model.embed_tokens.weight": [6, 4], "model.norm.weight": [4]}
    layer = "model.layers.0."
    for norm in ("input_layernorm", "post_attention_layernorm"):
        shapes[f"{layer}{norm}.weight"] = [4]
    for projection, shape in {"q": [4, 4], "k": [2, 4], "v": [2, 4], "o": [4, 4]}.items():
        shapes[f"{layer}self_attn.{projection}_proj.weight"] = shape
    shapes |= {f"{layer}mlp.{name}_proj.weight": [3, 4] for name in ("gate", "up")}
    shapes[layer + "mlp.down_proj.weight"] = [4, 3]
    config = {"model_type": "llama", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 1, "intermediate_size": 3, "vocab_size": 6, "max_position_embeddings": 8,
              "tie_word_embeddings": True} | extra
    return json.dumps(config).encode(), [(name, "F32", shape, floats(product(shape))) for name, shape in shapes.items()]


def gpt2():
    layer = "transformer.h.0."
    shapes = {"transformer.wte.weight": [6, 4], "transformer.wpe.weight": [8, 4]}
    for norm in (layer + "ln_1", layer + "ln_2", "transformer.ln_f"):
        shapes |= {norm + ".weight": [4], norm + ".bias": [4]}
    for name, shape in {"attn.c_attn": [4, 12], "attn.c_proj": [4, 4], "mlp.c_fc": [4, 16], "mlp.c_proj": [16, 4]}.items():
        shapes |= {f"{layer}{name}.weight": shape, f"{layer}{name}.bias": shape[1:]}
    config = {"model_type": "gpt2", "n_embd": 4, "n_layer": 1, "n_head": 2, "vocab_size": 6, "n_positions": 8}
    return json.dumps(config).encode(), [(name, "BF16", shape, halves(product(shape))) for name, shape in shapes.items()]


def product(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def make_model_folders():
    rope = {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 4}}
    for name, (config, tensors) in {"llama": llama({}), "llama-rope": llama(rope), "gpt2": gpt2()}.items():
        header, data = header_and_data(tensors)
        put("model_folder", name, b"\n%\n".join([config, header, data]))
    config, tensors = llama({})
    header, data = header_and_data(tensors)
    index = {"weight_map": {name: "a.safetensors" for name, *_ in tensors}}
    put("model_folder", "index", b"\n%\n".join([config, header, data, json.dumps(index).encode()]))
    for name, elsewhere in {"index-outside": "../../etc/passwd", "index-escape": "\x1b]0;title\x07"}.items():
        put("model_folder", name, b"\n%\n".join([config, header, data, json.dumps({"weight_map": {"a": elsewhere}}).encode()]))
    raw = b"!" + struct.pack("<Q", len(header)) + header + data
    put("model_folder", "raw", config + b"\n%\n" + raw)
    for name, length in {"header-length": 2**63, "header-cut-off": len(header) + 10**6}.items():
        put("model_folder", name, config + b"\n%\n!" + struct.pack("<Q", length) + header)
    for name, size in {"shape-of-2-63": 2**63, "shape-of-2-60": 2**60, "shape-negative": -1}.items():
        tensor = {"a": {"dtype": "F32", "shape": [size, 0, size], "data_offsets": [0, 0]}}
        put("model_folder", name, b"\n%\n".join([config, json.dumps(tensor).encode(), b""]))
    layers, _ = llama({"num_hidden_layers": 16384})
    put("model_folder", "many-layers", b"\n%\n".join([layers, header, data]))
    nested, _ = llama({"model_type": json.loads("[" * 40 + "]" * 40)})
    put("model_folder", "nested", b"\n%\n".join([nested, header, data]))


def make_adapters():
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    name = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    tensors = [(name.format(layer, which), "F32", shape, bytes(4 * product(shape)))
               for layer in (0, 1) for which, shape in (("A", [2, 4]), ("B", [4, 2]))]
    header, data = header_and_data(tensors)
    put("adapter", "whole", b"\n%\n".join([json.dumps(config).encode(), header, data]))
    with_head, data_of_all = header_and_data([*tensors, ("base_model.model.lm_head.weight", "F32", [8, 4], bytes(128))])
    saving = json.dumps(config | {"modules_to_save": ["lm_head"]}).encode()
    put("adapter", "modules_to_save", b"\n%\n".join([saving, with_head, data_of_all]))
    for field, value in {"r": 3, "lora_alpha": 1e308, "target_modules": "all-linear", "use_rslora": True, "bias": "all",
                         "echelon_steps": 2**63, "echelon_base_digest": "00", "use_dora": [[]]}.items():
        changed_config = json.dumps(config | {field: value}).encode()
        put("adapter", field, b"\n%\n".join([changed_config, header, data]))
    for which, length in {"header-length": 2**63, "header-nan": 0x7FF8 << 48, "header-cut-off": len(header) + 10**6}.items():
        put("adapter", which, json.dumps(config).encode() + b"\n%\n!" + struct.pack("<Q", length) + header)


def make_chats():
    for name, text in {
        "chatml": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim }}{% endfor %}",
        "generation": "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %}{% endfor %}",
        "macro": "{% macro m(a, b=1) %}{{ a ~ b }}{% if a %}{{ m(false) }}{% endif %}{% endmacro %}{{ m('x') }}",
        "namespace": "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
        "filters": "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list | tojson(indent=2) }}",
        "strings": "{{ 'a,b'.split(',')[-1:] }}{{ 'x' * 9 | int }}{{ ('%s' ~ 1.5 | round(1, 'ceil')).rsplit('.', 1) }}",
        "call": "{% call(x) f(1) %}{{ x }}{% endcall %}{% filter upper %}a{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}",
        "loop": "{%- for k, v in {'a': 1}.items() if v -%}{{ loop.index }}{% continue %}{% else %}{% break %}{%- endfor -%}",
        "slices": "{{ 'h\u00e9llo'[::-1] }}{{ [1, 2, 3][-9:9:2] }}{{ (1 if 2 > 1 >= 1 else 3) // 2 ** 3 % 5 }}",
        "sort": "{{ [3, 1, 2] | sort(reverse=true) | unique | join('-') }}{{ {'b': 1} | dictsort | first | last }}",
        "raw": "{% raw %}{{ a }}{% endraw %}{# note #}{{ raise_exception('no') }}",
        "import": "a\n {% import 'x' as y %}",
    }.items():
        put("chat_template", name, text + '\n%\n[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a b"}]')
    for name, line in {
        "messages": '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 1}]}',
        "prompt": '{"prompt": "a", "completion": "b"}',
        "prompts": '{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}',
        "sharegpt": '{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}',
        "alpaca": '{"instruction": "a", "input": "x", "output": "b"}',
        "history": '{"instruction": "a", "output": "b", "system": "s", "history": [["c", "d"]]}',
        "tools_in_text": '{"conversations": [{"from": "gpt", "value": "b"}], "system": "s", "tools": "[{}]"}',
        "variables": '{"prompt": "a", "completion": "b", "chat_template_kwargs": {"enable_thinking": false}}',
        "tools": '{"messages": [{"role": "tool", "content": null, "tool_calls": [{"a": 1e999}]}], "tools": []}',
        "cut": '{"messages": [{"role": "us',
        "nested": "[" * 1500,
        "empty": '{"messages": []}',
        "surrogate": '{"messages": [{"role": "user", "content": "\\ud800"}]}',
    }.items():
        put("chat_line", name, line)


def make_lines():
    for name, line in {
        "text": b'{"text": "a \\u00e4 \\n b", "id": 1}',
        "last": b'{"text": "a", "text": 1, "text": "b"}',
        "replaced": b'{"text": "a", "text": [{"text": "b"}]}',
        "inner": b'{"meta": {"text": "a", "b": [1, {"text": "c"}]}, "txt": "d"}',
        "list": b'[{"text": "a"}]',
        "cut": b'{"text": "a\xc3',
        "not-utf8": b'{"text": "\xff\xfe"}',
        "surrogate": b'{"text": "\\ud800"}',
        "two": b'{"text": "a"} {"text": "b"}',
        "nested": b'{"text": ' + b"[" * 100,
        "overflow": b'{"n": 1e999, "text": "a"}',
        "zero": b'{"te\0xt": "a", "text": "\\u0000"}',
    }.items():
        put("text_line", name, line)


def make_tokenizer_folders():
    named = '{"bos_token": "<s>", "eos_token": {"content": "</s>"}}'
    model = '{"vocab_size": 32000}'
    for name, parts in {
        "template": ['{"chat_template": "{{ messages }}", "eos_token": null}', named, model],
        "templates": ['{"chat_template": [{"name": "tool", "template": ""}, {"name": "default", "template": "a"}]}', named, model],
        "template-number": ['{"chat_template": 7}', named, model],
        "templates-of-none": ['{"chat_template": [null, {"name": 1}, {"name": "default"}]}', named, model],
        "text-config": [named, "{}", '{"text_config": {"vocab_size": 8}}'],
        "text-config-list": [named, "{}", '{"text_config": [1], "vocab_size": -1}'],
        "vocab-size-overflow": [named, "{}", '{"vocab_size": 18446744073709551615}'],
        "content-number": ['{"eos_token": {"content": 7}}', '{"eos_token": ["a"]}', '{"vocab_size": 1.5}'],
        "cut": ['{"eos_token": ', '{"eos_token"', '{"vocab_size'],
        "lists": ["[" + "[]," * 100 + "1]", "[]", "7"],
        "nested": ["[" * 100, "{}", "[" * 100],
    }.items():
        put("tokenizer_folder", name, "\n%\n".join(parts))


def make_datasets():
    def index(kind, lengths, pointers, bounds, version=1):
        return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, kind, len(lengths), len(bounds)) +
                struct.pack(f"<{len(lengths)}i{len(pointers)}q{len(bounds)}q", *lengths, *pointers, *bounds))

    tokens = struct.pack("<9H", *range(9))
    mask = b"ECHMASK1" + struct.pack("<Q", 9) + bytes([1, 0] * 4 + [1])
    whole = index(8, [4, 5], [0, 8], [0, 1, 2])
    for name, parts in {
        "whole": [whole, tokens],
        "mask": [whole, tokens, mask],
        "mask-damaged": [whole, tokens, mask[:-1] + b"\2"],
        "mask-cut": [whole, tokens, mask[:-1]],
        "cut": [whole[:-1], tokens],
        "bin-cut": [whole, tokens[:-1]],
        "int32": [index(4, [2, 0, 1], [0, 8, 8], [0, 1, 3]), struct.pack("<3i", 7, 200, 9)],
        "negative": [index(5, [2], [0], [0, 1]), struct.pack("<2q", -1, 2**40)],
        "overlap": [index(8, [9] * 9, [0] * 9, [0, 9]), tokens],
        "length-negative": [index(8, [-1], [0], [0, 1]), tokens],
        "pointer-odd": [index(8, [4, 4], [0, 9], [0, 2]), tokens],
        "pointer-outside": [index(8, [4], [2**62], [0, 1]), tokens],
        "bounds-fall": [index(8, [4, 5], [0, 8], [0, 2, 1]), tokens],
        "no-sequences": [index(8, [], [], [0]), b""],
        "version": [index(8, [9], [0], [0, 1], 2), tokens],
        "float": [index(6, [2], [0], [0, 1]), bytes(8)],
    }.items():
        put("dataset", name, b"\n%\n".join(parts))


def make_tokenizers():
    texts = ROOT / "tests/data/pipelines"
    for name in ("gpt2", "llama2", "phi3", "t5_unigram", "behaviors", "nfkd_strip", "added_flags", "lookbehind"):
        spec = json.loads((texts / f"{name}.json").read_text())
        vocab = spec["model"]["vocab"]
        if isinstance(vocab, dict):
            kept = dict(sorted(vocab.items(), key=lambda item: item[1])[:60])
            merges = [m for m in spec["model"]["merges"] if all(p in kept for p in (m.split(" ") if isinstance(m, str) else m))]
            spec["model"] |= {"vocab": kept, "merges": [m for m in merges if "".join(m.split(" ") if isinstance(m, str) else m) in kept]}
        else:
            spec["model"]["vocab"] = vocab[:60]
        put("tokenizer", name, "j" + json.dumps(spec))
    doubling = {"type": "Replace", "pattern": {"String": "l"}, "content": "ll"}
    spec["normalizer"] = {"type": "Sequence", "normalizers": [doubling] * 60}
    put("tokenizer", "doubling", "j" + json.dumps(spec))
    put("tokenizer", "ranks", "r" + "".join(
        f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256)) + "YWI= 256\nYWJi 257\n")
    put("tokenizer", "vocab", 'v{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}\n%\n#version: 0.2\na b\n')
    for model_type in (1, 2):
        put("tokenizer", f"sentencepiece-{model_type}", b"s" + sentencepiece(model_type))
    put("tokenizer", "sentencepiece-cut-off", b"s" + sentencepiece(1)[:-3])
    put("tokenizer", "sentencepiece-rules", b"s" + sentencepiece(1, rules_of_characters()))


def rules_of_characters():
    """A trie of three units, in which "a" becomes "ab": the root, its child (with a value), and the value."""
    units = [(ord("a") ^ 1) << 10, (1 ^ 2) << 10 | 1 << 8 | ord("a"), 1 << 31]
    return struct.pack("<4I", 12, *units) + b"ab\0"


def sentencepiece(model_type, rules=b""):
    def field(number, content):
        return bytes([number << 3 | 2, len(content)]) + content

    def piece(text, score, kind=1):
        return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([3 << 3, kind]))

    pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("\u2581ab", -1), ("ab", -2), ("\u2581", -3), ("a", -4), ("b", -5)]
    return b"".join(piece(*p) for p in pieces) + field(2, bytes([3 << 3, model_type])) + field(3, (field(2, rules) if rules else b"") + bytes([4 << 3, 0]))


make_manifests()
make_state_files()
make_model_folders()
make_adapters()
make_chats()
make_lines()
make_tokenizer_folders()
make_datasets()
make_tokenizers()
