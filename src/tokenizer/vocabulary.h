// id -> token text and kind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "string_ids.h"
#include "tokenizer/tokenizer.h"

namespace forge {

class TokenTable {
  public:
    // Files that name larger ids are refused: the tables are indexed by id.
    static constexpr std::int64_t kMaxId = (1 << 20) - 1;

    // A later set() of the same id replaces the text and kind.
    void set(std::int32_t id, std::string_view text, TokenKind kind);
    std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }
    bool has(std::int32_t id) const { return id >= 0 && id < size() && entries_[index(id)].present; }
    std::string_view text(std::int32_t id) const {
        const Entry& e = entries_[index(id)];
        return {arena_.data() + e.offset, e.length};
    }
    TokenKind kind(std::int32_t id) const { return has(id) ? entries_[index(id)].kind : TokenKind::unused; }

  private:
    struct Entry {
        std::uint64_t offset = 0;
        std::uint32_t length = 0;
        TokenKind kind = TokenKind::unused;
        bool present = false;
    };
    static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
    std::string arena_;
    std::vector<Entry> entries_;
};

// "<0x0A>" -> 10: the text of a byte token. from_chars-like: two hex digits of either case.
std::optional<std::uint8_t> byte_token_value(std::string_view text);
std::string byte_token_text(std::uint8_t byte);  // upper-case digits

}  // namespace forge
