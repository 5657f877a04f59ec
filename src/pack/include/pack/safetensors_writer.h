// Writes a safetensors file front to back. The header is padded so that the
// data begins at a multiple of 64, and tensors lie in falling order of element
// size, so that every element is aligned.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/dtype.h"
#include "pack/partial_file.h"

namespace forge {

// "BF16", "F8_E4M3", ...
std::string_view safetensors_name(DType type);

class SafetensorsWriter {
  public:
    explicit SafetensorsWriter(std::string target);

    void set_metadata(std::string_view key, std::string_view value);  // strings of __metadata__
    void add_tensor(std::string_view name, std::span<const std::int64_t> shape, DType type);

    // Writes the header. Returns the order in which the data must come: indices
    // in the order of add_tensor.
    std::vector<std::size_t> begin();
    void write(std::span<const std::byte> bytes);  // pieces of any size
    void skip_data();                              // instead of all of it: zeros that take no room
    void finish();

    std::uint64_t data_bytes() const;

  private:
    struct Entry {
        std::string name;
        std::vector<std::int64_t> shape;
        DType type;
        std::uint64_t bytes;
    };
    PartialFile file_;
    std::map<std::string, std::string, std::less<>> metadata_;
    std::unordered_set<std::string> names_;
    std::vector<Entry> tensors_;
    bool begun_ = false;
    std::uint64_t written_ = 0;
};

}  // namespace forge
