// Assembles GGUF bytes field by field, so that a test can make any of them wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace forge {

struct RawGguf {
    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::uint64_t pair_count = 0, tensor_count = 0;  // counted by pair() and tensor(); may be changed
    std::uint64_t alignment = 32;                    // of the data; a key must be added too
    std::string pairs, infos, data;

    template <typename T>
    static std::string number(T value) {
        std::string bytes(sizeof(T), '\0');
        std::memcpy(bytes.data(), &value, sizeof(T));
        return bytes;
    }
    static std::string text(const std::string& s) { return number<std::uint64_t>(s.size()) + s; }

    // value: encoded, without its type.
    RawGguf& pair(const std::string& key, std::uint32_t type, const std::string& value) {
        pairs += text(key) + number(type) + value;
        ++pair_count;
        return *this;
    }
    RawGguf& architecture(const std::string& name = "llama") {
        return pair("general.architecture", 8, text(name));
    }

    static std::string info(const std::string& name, const std::vector<std::uint64_t>& ne, std::uint32_t type,
                            std::uint64_t offset) {
        std::string out = text(name) + number(static_cast<std::uint32_t>(ne.size()));
        for (std::uint64_t dim : ne) out += number(dim);
        return out + number(type) + number(offset);
    }
    RawGguf& tensor(const std::string& name, const std::vector<std::uint64_t>& ne, std::uint32_t type,
                    std::uint64_t offset) {
        infos += info(name, ne, type, offset);
        ++tensor_count;
        return *this;
    }

    std::string bytes() const {
        std::string out = magic + number(version) + number(tensor_count) + number(pair_count) + pairs + infos;
        out.resize((out.size() + alignment - 1) / alignment * alignment);
        return out + data;
    }
};

}  // namespace forge
