// The manifest of a .forge model: which blobs it is made of, and where it comes from (docs/format.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace forge {

inline constexpr int kForgeVersion = 1;  // of the format: manifests, shards and files
inline constexpr std::string_view kManifestFormat = "forge-manifest";

// What a blob is for.
//   shard      planes of weights (formats/forge_shard.h); their order is the order of computation
//   metadata   typed key-value pairs (formats/forge_metadata.h)
//   tokenizer  those of the tokenizer and the chat template (models made from GGUF)
//   tensors    names, shapes and types of the source's tensors, and the data of small ones
//   file       a file of the source as it was, under its name: config.json, tokenizer.json, ...
//   licence    the licence's text
//   proof      prompt, tokens and logits (docs/format.md)
struct ManifestBlob {
    std::string role;
    std::string name;  // of a file; for shards what they hold: "embedding", "layer.0", "head"
    Digest digest;
    std::uint64_t bytes = 0;
    // Shards only: XXH3 of the shard's index, so that a swapped shard is noticed without reading it.
    std::uint64_t index_hash = 0;
    std::vector<std::string> tensors;  // names in the shard's index, in its order
};

struct Manifest {
    std::string source;               // for messages
    std::string origin;               // "gguf", "huggingface" or "mlx": whose names and config it keeps
    std::string layout;               // "rows" or "tiled16"
    nlohmann::ordered_json model;     // name, architecture, parameters, context, ...: for people
    nlohmann::ordered_json provenance;
    std::vector<ManifestBlob> blobs;

    // Error that names `source` and what is wrong.
    static Manifest parse(std::string_view text, const std::string& source);
    std::string dump() const;  // the same manifest has the same text

    const ManifestBlob* find(std::string_view role, std::string_view name = {}) const;  // nullptr when absent
    std::uint64_t bytes() const;  // of all blobs
};

// Where a folder of blobs has one: ROOT/ab/abcd...
std::filesystem::path blob_path_in(const std::filesystem::path& root, const Digest& digest);

}  // namespace forge
