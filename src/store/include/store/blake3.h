// BLAKE3, the content address of blobs.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "base/digest.h"

namespace forge {

class Blake3 {
  public:
    Blake3();
    ~Blake3();
    Blake3(Blake3&&) noexcept;
    Blake3& operator=(Blake3&&) noexcept;

    void update(std::span<const std::byte> bytes);
    Digest finish() const;  // of everything so far; more may follow

  private:
    struct State;
    std::unique_ptr<State> state_;
};

Digest blake3(std::span<const std::byte> bytes);
// Of a file, read front to back; `advance` (may be empty) is told of each piece, in bytes.
Digest blake3_file(const std::filesystem::path& path, const std::function<void(std::uint64_t)>& advance = {});

}  // namespace forge
