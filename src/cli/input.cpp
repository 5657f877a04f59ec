#include "input.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>

#include "base/error.h"
#include "base/paths.h"

namespace forge::cli {

std::string read_input(const std::string& path) {
    if (path != "-") return read_file(path);
    std::string text;
    std::array<char, 65536> buffer;
    while (const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), stdin)) text.append(buffer.data(), n);
    if (std::ferror(stdin)) fail(ErrorKind::io, "cannot read standard input: {}", std::strerror(errno));
    return text;
}

void for_each_line(const std::string& path, const std::function<void(const std::string&)>& body) {
    std::ifstream file;
    if (path != "-") {
        file.open(path, std::ios::binary);
        if (!file) fail(errno == ENOENT ? ErrorKind::not_found : ErrorKind::io, "cannot read {}: {}", path, std::strerror(errno));
    }
    std::istream& in = path == "-" ? std::cin : file;
    std::string line;
    while (std::getline(in, line)) body(line);
}

}  // namespace forge::cli
