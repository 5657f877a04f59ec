// Small valid files for the fuzz targets to begin from, a folder a target, made here or out of tests/data.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/paths.h"
#include "formats/forge_container.h"
#include "formats/forge_manifest.h"
#include "formats/forge_metadata.h"
#include "formats/forge_shard.h"
#include "formats/model_file.h"
#include "pack/gguf_writer.h"
#include "pack/safetensors_writer.h"
#include "quant/convert.h"

namespace {

using namespace forge;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

void write_gguf_seed(const std::string& path, GgufType type, std::uint32_t alignment) {
    GgufWriter out(path, alignment);
    out.set_string("general.architecture", "llama");
    out.set_u16("split.count", 1);
    out.set_i32("i", -1);
    out.set_u64("u", 1);
    out.set_f32("f", 0.5f);
    out.set_bool("b", true);
    out.set_strings("tokens", std::vector<std::string>{"a", "bc"});
    out.set_i32s("types", std::vector<std::int32_t>{1, 3});
    out.set_f32s("scores", std::vector<float>{0, -1});
    out.set_bools("flags", {true, false});
    const BlockSize block = gguf_block_size(static_cast<std::uint32_t>(type)).value();
    out.add_tensor("w", std::vector<std::int64_t>{2, block.elements}, type);
    out.add_tensor("n", std::vector<std::int64_t>{1}, GgufType::f32);
    out.begin();
    out.write(std::vector<std::byte>(static_cast<std::size_t>(2 * block.bytes + 4), std::byte{0x31}));
    out.finish();
}

void write_safetensors_seed(const std::string& path) {
    SafetensorsWriter out(path);
    out.set_metadata("format", "pt");
    out.add_tensor("a", std::vector<std::int64_t>{2, 2}, DType::bf16);
    out.add_tensor("b", std::vector<std::int64_t>{3}, DType::u8);
    out.add_tensor("c", std::vector<std::int64_t>{0}, DType::f32);
    out.begin();
    out.write(std::vector<std::byte>(11));
    out.finish();
}

// Everything of a GGUF file but the data: that is what its target wants.
void write_gguf_head(const fs::path& model, const fs::path& to) {
    const auto file = open_gguf(model.string());
    const std::span<const std::byte> bytes = file->files[0]->bytes();
    const std::byte* first = bytes.data() + bytes.size();
    for (const Tensor& tensor : file->tensors) first = std::min(first, tensor.data.data());
    write_file_atomically(
        to, {reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(first - bytes.data())});
}

// A model folder as its target wants it: config.json, and what tensors there are.
void write_folder_model(const fs::path& folder, const fs::path& to) {
    const auto file = open_huggingface(folder.string());
    Json tensors = Json::object();
    for (const Tensor& tensor : file->tensors)
        tensors[tensor.name] = Json::array({name_of(tensor.dtype), tensor.shape});
    write_file_atomically(to, Json{{"config", file->config}, {"tensors", tensors}}.dump());
}

void write_model_seeds(const fs::path& data, const fs::path& folder) {
    for (const char* kind : {"models", "models-mixed", "models-mlx"})
        for (const auto& entry : fs::directory_iterator(data / kind)) {
            const fs::path model = entry.path();
            const std::string name = model.filename().string();
            if (fs::exists(model / "model.gguf"))
                write_gguf_head(model / "model.gguf", folder / "gguf_model" / name);
            if (!fs::exists(model / "config.json")) continue;
            write_file_atomically(folder / "config" / name, read_file(model / "config.json"));
            write_folder_model(model, folder / "folder_model" / name);
        }
}

// The tokenizers of tests/data with most of their vocabulary left out, so that mutations hit the rest.
void write_tokenizer_seeds(const fs::path& data, const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(data / "tokenizer")) {
        Json json = Json::parse(read_file(entry.path())).at("tokenizer");
        Json& model = json["model"];
        Json vocab = Json::object(), merges = Json::array();
        for (const auto& [token, id] : model["vocab"].items())
            if (id.get<int>() < 40) vocab[token] = id;
        for (const Json& merge : model["merges"]) {
            if (!merge.is_array()) continue;
            const std::string a = merge[0], b = merge[1];
            if (vocab.contains(a) && vocab.contains(b) && vocab.contains(a + b)) merges.push_back(merge);
        }
        if (model["unk_token"].is_string() && !vocab.contains(model["unk_token"].get<std::string>()))
            model["unk_token"] = nullptr;
        model["vocab"] = vocab;
        model["merges"] = merges;
        write_file_atomically(folder / "tokenizer_json" / entry.path().stem(), json.dump());
    }
}

// Length-delimited field of a protobuf message shorter than 128 bytes.
std::string field(char tag, std::string_view content) {
    return std::string(1, tag) + static_cast<char>(content.size()) + std::string(content);
}

void write_sentencepiece_seed(const fs::path& path) {
    const auto piece = [](std::string_view text, char type) {  // text, score -1, type
        return field('\x0a', field('\x0a', text) + std::string("\x15\0\0\x80\xBF", 5) + '\x18' + type);
    };
    write_file_atomically(path, piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) +
                                    piece("\xE2\x96\x81", 1) + piece("l", 1) + piece("o", 1) +
                                    piece("lo", 5) + piece("\xE2\x96\x81lo", 1) + piece("<0x0A>", 6) +
                                    piece("<tool>", 4) +
                                    field('\x12', "\x18\x02\x98\x02\x01") +    // BPE, byte_fallback
                                    field('\x1a', std::string("\x20\0", 2)));  // keep extra white space
}

void write_tekken_seed(const fs::path& path) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    Json vocab = Json::array();
    for (std::size_t b = 0; b < 256; ++b)
        vocab.push_back(
            {{"rank", b}, {"token_bytes", std::string{digits[b >> 2], digits[(b & 3) << 4], '=', '='}}});
    vocab.push_back({{"rank", 256}, {"token_bytes", "bG8="}});  // "lo"
    const Json json = {
        {"config",
         {{"pattern", "\\p{L}+|."}, {"default_vocab_size", 260}, {"default_num_special_tokens", 3}}},
        {"vocab", vocab}};
    write_file_atomically(path, json.dump());
}

void write_jinja_seeds(const fs::path& data, const fs::path& folder) {
    const Json json = Json::parse(read_file(data / "chat/jinja_semantics.json"));
    int number = 0;
    for (const auto& [name, test] : json.at("cases").items())
        write_file_atomically(folder / "jinja" / fmt::format("{:04}", number++),
                              test.at("template").get<std::string>());
    // As inputs: JSON that is put into a template.
    write_file_atomically(folder / "jinja" / "inputs",
                          R"([1, -2.5e3, "é\u00e9\n", {"a": [true, null]}, 12345678901234567890])");
}

// The parts of a .forge model; the first byte says which (forge_model_fuzz.cpp).
void write_forge_seeds(const fs::path& folder) {
    const auto seed = [&](const char* name, char part, const std::string& bytes) { write_file_atomically(folder / "forge_model" / name, std::string(1, part) + bytes); };
    Manifest manifest;
    manifest.origin = "gguf";
    manifest.layout = "rows";
    manifest.model = Json::object();
    manifest.provenance = Json::object();
    manifest.blobs = {{"shard", "layer.0", {}, 5, 7, {"a", "b"}}, {"file", "config.json", {}, 3, 0, {}}, {"tensors", "", {}, 4, 0, {}}};
    seed("manifest", 0, manifest.dump());
    Metadata pairs;
    pairs.set("a", true);
    pairs.set("b", std::string("text"));
    pairs.set("c", std::vector<std::string>{"x", "yz"});
    pairs.set("d", std::vector<double>{0.5});
    pairs.set("e", std::vector<bool>{true, false});
    seed("pairs", 3, encode_pairs(pairs, [](std::string_view) { return true; }));
    std::vector<Tensor> tensors(1);
    tensors[0].name = "w";
    tensors[0].shape = {2, 32};
    tensors[0].is_block = true;
    tensors[0].block = GgufType::q4_0;
    seed("tensors", 4, encode_tensor_list(tensors, [](const Tensor&) { return false; }));
    for (const GgufType type : {GgufType::f16, GgufType::q4_0, GgufType::q5_1, GgufType::q2_k, GgufType::q4_k, GgufType::q6_k, GgufType::iq4_xs, GgufType::nvfp4})
        for (const bool tiled : {false, true}) {
            std::vector<PackedWeight> weights(1);
            weights[0].key.name = "w";
            weights[0].format = format_of_gguf(type, "");
            weights[0].rows = 16;
            weights[0].cols = 256;
            weights[0].tiled = tiled && !weights[0].format.is_dense();
            weights[0].planes = packed_planes(weights[0].format, 16, 256, weights[0].tiled);
            const std::uint64_t bytes = lay_out_shard(weights);
            const std::string head = shard_header(weights), tail = shard_tail(weights);
            seed(fmt::format("shard-{}-{}", gguf_type_name(static_cast<std::uint32_t>(type)), tiled).c_str(), 2, head + std::string(bytes - head.size() - tail.size(), 'p') + tail);
            // The index alone: one record, behind two bytes.
            const std::size_t footer = 8 * weights[0].planes.size() + 24;
            const std::size_t index = (weights[0].key.name.size() + 7) / 8 * 8 + 56 + 32 * weights[0].planes.size();
            seed(fmt::format("index-{}-{}", gguf_type_name(static_cast<std::uint32_t>(type)), tiled).c_str(), 1, std::string("\x01\x00", 2) + tail.substr(tail.size() - footer - index, index));
        }
    const std::vector<ContainedBlob> blobs{{{}, kPlaneAlignment, 9}};
    seed("container", 5, container_tail("{}", blobs, 2 * kPlaneAlignment));
}

// A request for each protocol, and an answer with calls for each family of tool calls; the first bytes choose.
void write_server_seeds(const fs::path& folder) {
    const char* requests[] = {
        R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"t"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"auto","stop":["a"],"temperature":1,"logit_bias":{"5":-100},"seed":7,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":3,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}}})",
        R"({"prompt":["a","b"],"max_tokens":5,"stop":"x","echo":true,"n":2,"best_of":2})",
        R"({"instructions":"i","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}],"tools":[{"type":"function","name":"f","parameters":{}}],"text":{"format":{"type":"json_schema","schema":{}}},"reasoning":{"effort":"high"}})",
        R"({"model":"m","max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"t","name":"f","input":{"x":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}],"thinking":{"type":"enabled","budget_tokens":9}})",
        R"({"model":"m","messages":[{"role":"user","content":"a","images":[]}],"options":{"temperature":1,"num_predict":5,"stop":["x"]},"format":{"type":"object"},"keep_alive":"5m","think":true})",
        R"({"model":"m","prompt":"p","system":"s","suffix":"x","raw":true,"format":"json"})",
        R"({"input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"f","text":"t"}],"n_predict":5})",
        R"({"input":[[1,2],[3]]})"};
    for (std::size_t i = 0; i < std::size(requests); ++i)
        write_file_atomically(folder / "requests" / std::to_string(i), std::string(1, static_cast<char>(i)) + requests[i]);
    const char* answers[] = {
        "I call. <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "[TOOL_CALLS]f[ARGS]{\"a\": 1}", "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
        "```tool_code\nf(a=1, b=None, c=[1, \"x\"])\n```", "<|tool_call>call:f{a:1,c:[<|\"|>x<|\"|>]}<tool_call|>", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>",
        "<\xEF\xBD\x9Ctool\xE2\x96\x81" "calls\xE2\x96\x81" "begin\xEF\xBD\x9C>"};
    for (int family = 0; family < 14; ++family)
        for (std::size_t i = 0; i < std::size(answers); ++i)
            write_file_atomically(folder / "tool_calls" / fmt::format("{}-{}", family, i), std::string{static_cast<char>(family), '\x09'} + answers[i]);
}

// The first byte of a schema's seed says whether objects are open.
void write_grammar_seeds(const fs::path& folder) {
    const char* schemas[] = {
        R"({"type":"object","properties":{"a":{"type":"string","minLength":1,"maxLength":3},"b":{"type":"integer","minimum":-3,"exclusiveMaximum":12.5}},"required":["b"],"additionalProperties":false})",
        R"({"type":"array","prefixItems":[{"const":null}],"items":{"enum":["x",1.5,[],{"k":true}]},"minItems":1,"maxItems":4})",
        R"({"$ref":"#/$defs/n","$defs":{"n":{"$anchor":"m","type":"object","properties":{"l":{"$ref":"#m"}},"patternProperties":{"^x[a-c]+$":{"type":"number","multipleOf":0.25}}}}})",
        R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"}},"required":["k"]},{"type":["null","boolean"]}],"not":{"type":"string"}})",
        R"J({"allOf":[{"pattern":"^(a|b){2,}[^x-z\d]?$"},{"format":"date-time"}],"anyOf":[{"propertyNames":{"maxLength":2},"minProperties":1,"maxProperties":3},{"items":false}]})J"};
    for (std::size_t i = 0; i < std::size(schemas); ++i) write_file_atomically(folder / "json_schema" / std::to_string(i), fmt::format("{}{}", i % 2, schemas[i]));
    write_file_atomically(folder / "gbnf" / "0", "root ::= (\"a\" | [b-d\\u00e4] x{2,3})* # end\nx ::= \"\\n\" root? | [^\\x00-\\x20] .\n  | y+\ny ::= \"\"");
}

// The first byte says what the rest is (server_answers_fuzz.cpp).
void write_answer_seeds(const fs::path& folder) {
    const std::string git(40, '1'), sha256(64, '2');
    const std::vector<std::string> answers{
        fmt::format(R"([{{"type":"file","oid":"{}","size":9,"path":"a/b","lfs":{{"oid":"{}","size":9}}}}])", git, sha256),
        fmt::format(R"({{"sha":"{}"}})", git),
        R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})",
        fmt::format(R"({{"config":{{"mediaType":"a","digest":"sha256:{}","size":2,"annotations":{{"b":"c"}}}},"layers":[]}})", sha256),
        R"(Bearer realm="https://a/t",service="s",scope="repository:a/b:pull", Basic realm=x)",
        R"(<https://a/b?c=d>; rel="next", <https://a/>; rel="prev")",
        R"({"errors":[{"message":"no"}],"error":"no"})",
        "//host:80/path?query#fragment"};
    for (std::size_t i = 0; i < answers.size(); ++i)
        write_file_atomically(folder / fmt::format("{}", i), std::string(1, static_cast<char>(i)) + answers[i]);
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 3) {
        fmt::print(stderr, "usage: make_fuzz_seeds FOLDER TESTS_DATA\n");
        return 2;
    }
    try {
        const fs::path folder(arguments[1]), data(arguments[2]);
        for (const char* target : {"config", "folder_model", "forge_model", "gbnf", "gguf", "gguf_model", "jinja", "json_schema", "requests", "safetensors",
                                   "sentencepiece", "server_answers", "tokenizer_json", "tokenizer_tekken", "tool_calls"})
            fs::create_directories(folder / target);
        for (std::uint32_t id = 0; id < 64; ++id)
            if (gguf_block_size(id))
                write_gguf_seed(folder / "gguf" / fmt::format("{}.gguf", gguf_type_name(id)),
                                static_cast<GgufType>(id), id % 2 ? 8 : 32);
        write_safetensors_seed(folder / "safetensors" / "padded.safetensors");
        // Only a header: the target adds the length.
        write_file_atomically(
            folder / "safetensors" / "header",
            R"({"__metadata__":{"format":"mlx"},"a":{"dtype":"F8_E4M3","shape":[1,3],"data_offsets":[0,3]}}xyz)");
        write_forge_seeds(folder);
        write_model_seeds(data, folder);
        write_tokenizer_seeds(data, folder);
        write_sentencepiece_seed(folder / "sentencepiece" / "bpe");
        write_tekken_seed(folder / "tokenizer_tekken" / "bytes");
        write_jinja_seeds(data, folder);
        write_server_seeds(folder);
        write_grammar_seeds(folder);
        write_answer_seeds(folder / "server_answers");
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
