#include "digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

namespace forge::server {
namespace {

// FIPS 180-4: fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> round_words{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void take_block(std::array<std::uint32_t, 8>& state, const char* block) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i)
        for (std::size_t k = 0; k < 4; ++k) w[i] = w[i] << 8 | static_cast<unsigned char>(block[4 * i + k]);
    for (std::size_t i = 16; i < 64; ++i) {
        const std::uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] + (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t i = 0; i < 64; ++i) {
        const std::uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + round_words[i] + w[i];
        const std::uint32_t two = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    const std::array<std::uint32_t, 8> add{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state[i] += add[i];
}

void sample(const std::filesystem::path& path, std::string& into) {
    constexpr std::uint64_t piece = 16 << 10, places = 64;
    std::error_code error;
    const std::uint64_t size = std::filesystem::file_size(path, error);
    std::ifstream in(path, std::ios::binary);
    if (error || !in) return;
    into += fmt::format("{}\n{}\n", path.filename().string(), size);
    std::string bytes(piece, '\0');
    const std::uint64_t last = size > piece ? size - piece : 0;
    for (std::uint64_t i = 0; i < places; ++i) {
        in.clear();
        in.seekg(static_cast<std::streamoff>(last / (places - 1) * i + (i + 1 == places ? last % (places - 1) : 0)));
        in.read(bytes.data(), static_cast<std::streamsize>(piece));
        into.append(bytes.data(), static_cast<std::size_t>(in.gcount()));
        if (last == 0) break;
    }
}

}  // namespace

std::string sha256(std::string_view bytes) {
    std::array<std::uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::size_t at = 0;
    for (; at + 64 <= bytes.size(); at += 64) take_block(state, bytes.data() + at);
    std::string tail(bytes.substr(at));
    tail += '\x80';
    tail.append((120 - tail.size()) % 64, '\0');
    for (int shift = 56; shift >= 0; shift -= 8) tail += static_cast<char>(static_cast<std::uint64_t>(bytes.size()) * 8 >> shift);
    for (at = 0; at < tail.size(); at += 64) take_block(state, tail.data() + at);
    std::string hex;
    for (const std::uint32_t word : state) hex += fmt::format("{:08x}", word);
    return hex;
}

std::string model_digest(const std::string& path) {
    std::error_code ignored;
    std::vector<std::filesystem::path> files;
    if (std::filesystem::is_directory(path, ignored)) {
        for (const auto& entry : std::filesystem::directory_iterator(path, ignored))
            if (entry.is_regular_file(ignored)) files.push_back(entry.path());
        std::sort(files.begin(), files.end());
    } else {
        files.emplace_back(path);
    }
    std::string samples;
    for (const auto& file : files) sample(file, samples);
    return samples.empty() ? "" : sha256(samples);
}

}  // namespace forge::server
