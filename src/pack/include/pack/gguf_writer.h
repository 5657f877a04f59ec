// Writes a GGUF v3 file front to back: metadata, tensor table, then data.
//
//   GgufWriter out("model.gguf");
//   out.set_string("general.architecture", "llama");
//   out.add_tensor("token_embd.weight", {rows, cols}, GgufType::q4_0);
//   out.begin();
//   out.write(bytes);      // the tensors' data in the order of add_tensor, in pieces of any size
//   out.finish();
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "pack/partial_file.h"
#include "quant/gguf_blocks.h"

namespace forge {

class GgufWriter {
  public:
    explicit GgufWriter(std::string target, std::uint32_t alignment = 32);

    // Metadata, before begin(); a key may be set once.
    void set_u16(std::string_view key, std::uint16_t value);
    void set_u32(std::string_view key, std::uint32_t value);
    void set_i32(std::string_view key, std::int32_t value);
    void set_u64(std::string_view key, std::uint64_t value);
    void set_f32(std::string_view key, float value);
    void set_bool(std::string_view key, bool value);
    void set_string(std::string_view key, std::string_view value);
    void set_strings(std::string_view key, std::span<const std::string> values);
    void set_i32s(std::string_view key, std::span<const std::int32_t> values);
    void set_f32s(std::string_view key, std::span<const float> values);
    void set_bools(std::string_view key, const std::vector<bool>& values);

    // shape: outermost first; the last dimension must be a multiple of the type's block.
    void add_tensor(std::string_view name, std::span<const std::int64_t> shape, GgufType type);

    void begin();
    void write(std::span<const std::byte> bytes);  // Error(internal) beyond the last tensor
    void finish();                                 // Error(internal) when data is missing

    std::uint64_t data_bytes() const;  // of all tensors, without padding

  private:
    struct Entry {
        std::string name;
        std::vector<std::int64_t> shape;
        GgufType type;
        std::uint64_t bytes;
    };
    void key(std::string_view key, std::uint32_t type);

    PartialFile file_;
    std::uint32_t alignment_;
    std::string pairs_;  // encoded
    std::uint64_t pair_count_ = 0;
    std::unordered_set<std::string> keys_, names_;
    std::vector<Entry> tensors_;
    bool begun_ = false;
    std::size_t current_ = 0;         // tensor being written
    std::uint64_t current_done_ = 0;  // bytes of it
};

}  // namespace forge
