// XXH3 with 64 bits: notices damage, proves nothing about who wrote the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace forge {

std::uint64_t xxh3(std::span<const std::byte> bytes);

// Of bytes that come in pieces.
class Xxh3 {
  public:
    Xxh3();
    ~Xxh3();
    Xxh3(Xxh3&&) noexcept;
    Xxh3& operator=(Xxh3&&) noexcept;

    void update(std::span<const std::byte> bytes);
    std::uint64_t finish() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace forge
