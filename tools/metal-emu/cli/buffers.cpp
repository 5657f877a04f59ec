#include "cli/buffers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>

#include "metal_emu/launch.h"

namespace metal_emu {
namespace {

std::size_t size_of(const std::string& type) {
    if (type == "f32" || type == "u32" || type == "i32") return 4;
    if (type == "f16" || type == "bf16" || type == "u16") return 2;
    if (type == "u8") return 1;
    throw std::runtime_error("a buffer's type is one of f32 f16 bf16 u32 i32 u16 u8, not '" + type + "'");
}

template <typename T>
void put(std::byte* at, T value) {
    std::memcpy(at, &value, sizeof value);
}
template <typename T>
T get(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

void set(const std::string& type, std::byte* at, double v) {
    if (type == "f32") put(at, static_cast<float>(v));
    else if (type == "f16") put(at, static_cast<_Float16>(v));
    else if (type == "bf16") {
        std::uint32_t u = 0;
        const float f = static_cast<float>(v);
        std::memcpy(&u, &f, 4);
        put(at, static_cast<std::uint16_t>(std::isnan(f) ? 0x7fc0 : (u + 0x7fff + ((u >> 16) & 1)) >> 16));
    } else if (type == "i32") put(at, static_cast<std::int32_t>(v));
    else if (type == "u32") put(at, static_cast<std::uint32_t>(v));
    else if (type == "u16") put(at, static_cast<std::uint16_t>(v));
    else put(at, static_cast<std::uint8_t>(v));
}

double value_at(const std::string& type, const std::byte* at) {
    if (type == "f32") return static_cast<double>(get<float>(at));
    if (type == "f16") return static_cast<double>(get<_Float16>(at));
    if (type == "bf16") {
        const std::uint32_t u = static_cast<std::uint32_t>(get<std::uint16_t>(at)) << 16;
        float f;
        std::memcpy(&f, &u, 4);
        return static_cast<double>(f);
    }
    if (type == "i32") return get<std::int32_t>(at);
    if (type == "u32") return get<std::uint32_t>(at);
    if (type == "u16") return get<std::uint16_t>(at);
    return get<std::uint8_t>(at);
}

double filled(const std::string& fill, std::size_t i, std::mt19937& random) {
    if (fill == "zero") return 0;
    if (fill == "ones") return 1;
    if (fill == "iota") return static_cast<double>(i);
    if (fill == "nan") return NAN;
    if (fill == "random") return std::uniform_real_distribution<double>(-1, 1)(random);
    throw std::runtime_error("a buffer is filled with zero, ones, iota, random, nan or @FILE, not '" + fill + "'");
}

// "256" or "64x32": the product, and the extents of a tensor.
std::size_t extents_of(const std::string& text, std::vector<long>& extents) {
    std::size_t count = 1, at = 0;
    do {
        char* end = nullptr;
        const unsigned long n = std::strtoul(text.c_str() + at, &end, 10);
        const auto used = static_cast<std::size_t>(end - text.c_str());
        if (used == at || n == 0 || n > (1ul << 30) || extents.size() == kTensorRank || (used < text.size() && text[used] != 'x'))
            throw std::runtime_error("a count is a number from 1 on, or numbers with an x between, not '" + text + "'");
        extents.push_back(static_cast<long>(n));
        count = std::min<std::size_t>(count * n, std::size_t{1} << 40);
        at = used + 1;
    } while (at <= text.size());
    return count;
}

void allocate(DescribedBuffer& b, std::size_t bytes) {
    b.bytes = bytes;
    b.memory.resize(bytes / sizeof(std::max_align_t) + 1);
}

}  // namespace

std::pair<int, std::size_t> index_and_number(const std::string& text) {
    int index = 0, used = 0;
    unsigned long number = 0;
    if (std::sscanf(text.c_str(), "%d=%lu%n", &index, &number, &used) != 2 || static_cast<std::size_t>(used) != text.size() || index < 0)
        throw std::runtime_error("wanted INDEX=NUMBER, not '" + text + "'");
    return {index, number};
}

DescribedBuffer describe_buffer(const std::string& text) {
    DescribedBuffer b;
    const auto eq = text.find('='), colon = text.find(':'), star = text.find('*');
    int used = 0;
    if (eq == std::string::npos || std::sscanf(text.c_str(), "%d%n", &b.index, &used) != 1 || static_cast<std::size_t>(used) != eq || b.index < 0 ||
        b.index >= kBuffers || (star == std::string::npos && colon == std::string::npos))
        throw std::runtime_error("a buffer is described as INDEX=TYPE*COUNT[:FILL] or INDEX=TYPE:V,V,... with an index below 31, not '" + text + "'");
    const std::string rest = colon == std::string::npos ? "zero" : text.substr(colon + 1);
    if (star == std::string::npos || star > colon) {
        b.type = text.substr(eq + 1, colon - eq - 1);
        const std::size_t size = size_of(b.type);
        std::vector<double> values;
        std::stringstream list(rest);
        for (std::string one; std::getline(list, one, ',');) {
            char* end = nullptr;
            values.push_back(std::strtod(one.c_str(), &end));
            if (one.empty() || *end) throw std::runtime_error("'" + one + "' is no number");
        }
        allocate(b, values.size() * size);
        for (std::size_t i = 0; i < values.size(); i++) set(b.type, reinterpret_cast<std::byte*>(b.memory.data()) + i * size, values[i]);
        return b;
    }
    b.type = text.substr(eq + 1, star - eq - 1);
    const std::size_t size = size_of(b.type), count = extents_of(text.substr(star + 1, colon == std::string::npos ? colon : colon - star - 1), b.extents);
    if (count > (std::size_t{1} << 30)) throw std::runtime_error("a buffer has at most 2^30 elements here");
    allocate(b, count * size);
    auto* memory = reinterpret_cast<std::byte*>(b.memory.data());
    if (rest[0] == '@') {
        std::ifstream file(rest.substr(1), std::ios::binary);
        if (!file.read(reinterpret_cast<char*>(memory), static_cast<std::streamsize>(b.bytes)))
            throw std::runtime_error(rest.substr(1) + " does not have " + std::to_string(b.bytes) + " bytes");
        return b;
    }
    std::mt19937 random(static_cast<unsigned>(b.index) + 1);
    for (std::size_t i = 0; i < count; i++) set(b.type, memory + i * size, filled(rest, i, random));
    return b;
}

std::string values_of(const DescribedBuffer& b, std::size_t count) {
    const std::size_t size = size_of(b.type);
    std::string text;
    for (std::size_t i = 0; i < std::min(count, b.bytes / size); i++) {
        char one[40];
        std::snprintf(one, sizeof one, "%s%.9g", i ? " " : "", value_at(b.type, reinterpret_cast<const std::byte*>(b.memory.data()) + i * size));
        text += one;
    }
    return text;
}

}  // namespace metal_emu
