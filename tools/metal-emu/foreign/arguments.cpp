#include "foreign/arguments.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace metal_emu::foreign {
namespace {

std::size_t size_of(const std::string& type) {
    if (type == "bool" || type == "int8_t" || type == "uint8_t") return 1;
    if (type == "int16_t" || type == "uint16_t" || type == "half") return 2;
    if (type == "int32_t" || type == "uint32_t" || type == "float") return 4;
    return 8;
}

std::size_t aligned(std::size_t offset, std::size_t to) { return (offset + to - 1) / to * to; }

}  // namespace

Header::Header(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::stringstream stream;
    stream << file.rdbuf();
    const std::string text = std::regex_replace(stream.str(), std::regex("//[^\n]*"), "");
    const std::regex structure(R"(typedef\s+struct\s*\{([^}]*)\}\s*(\w+)\s*;)"), field(R"((\w+)\s+(\w+)\s*(?:\[(\d+)\])?\s*;)"),
        number(R"(#define\s+(\w+)\s+(\d+))");
    const std::sregex_iterator end;
    for (std::sregex_iterator s(text.begin(), text.end(), structure); s != end; ++s) {
        Structure made;
        std::size_t widest = 1;
        const std::string body = (*s)[1];
        for (std::sregex_iterator f(body.begin(), body.end(), field); f != end; ++f) {
            const std::size_t size = size_of((*f)[1]);
            const int count = (*f)[3].matched ? std::stoi((*f)[3]) : 1;
            const std::size_t offset = aligned(made.bytes, size);
            made.fields[(*f)[2]] = {offset, size, count};
            made.bytes = offset + size * static_cast<std::size_t>(count);
            widest = std::max(widest, size);
        }
        made.bytes = aligned(made.bytes, widest);
        structures_[(*s)[2]] = std::move(made);
    }
    for (std::sregex_iterator m(text.begin(), text.end(), number); m != end; ++m) macros_[(*m)[1]] = std::stol((*m)[2]);
}

const Header::Structure& Header::structure(const std::string& name) const {
    const auto it = structures_.find(name);
    if (it == structures_.end()) throw std::runtime_error("the header has no structure " + name);
    return it->second;
}

long Header::macro(const std::string& name) const {
    const auto it = macros_.find(name);
    if (it == macros_.end()) throw std::runtime_error("the header has no macro " + name);
    return it->second;
}

Arguments& Arguments::set(const std::string& field, long value, int index) {
    const auto it = structure_.fields.find(field);
    if (it != structure_.fields.end() && index < it->second.count)
        std::memcpy(&bytes_[it->second.offset + static_cast<std::size_t>(index) * it->second.size], &value, it->second.size);
    return *this;
}

Arguments& Arguments::set_float(const std::string& field, float value) {
    const auto it = structure_.fields.find(field);
    if (it != structure_.fields.end()) std::memcpy(&bytes_[it->second.offset], &value, sizeof value);
    return *this;
}

Arguments& Arguments::set_all(const std::string& stem, const std::string& tail, std::initializer_list<long> values) {
    int k = 0;
    for (const long v : values) set(stem + std::to_string(k++) + tail, v);
    return *this;
}

}  // namespace metal_emu::foreign
