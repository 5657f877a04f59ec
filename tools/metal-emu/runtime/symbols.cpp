// Code address -> line of the kernel, through llvm-symbolizer.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "runtime/worker.h"

namespace metal_emu {
namespace {

const char* symbolizer() {
    static const char* const found = std::system("llvm-symbolizer-19 --version >/dev/null 2>&1") == 0
                                         ? "llvm-symbolizer-19"
                                         : "llvm-symbolizer";
    return found;
}

// The innermost frame that lies in the kernel's own text, not in the shim.
std::string look_up(const std::string& image, unsigned long offset) {
    char command[1024], line[512];
    std::snprintf(command, sizeof command, "%s --inlines --functions=none -e '%s' 0x%lx 2>/dev/null",
                  symbolizer(), image.c_str(), offset);
    std::string found;
    if (FILE* pipe = popen(command, "r")) {
        while (std::fgets(line, sizeof line, pipe)) {
            std::string text(line);
            while (!text.empty() && text.back() == '\n') text.pop_back();
            if (found.empty() && text.find(':') != std::string::npos &&
                text.find("/shim/") == std::string::npos && text[0] != '?')
                found = text;
        }
        pclose(pipe);
    }
    // The text has no folder, so the compiler puts its own before it; people want the name alone.
    if (const auto slash = found.rfind('/'); slash != std::string::npos) found = found.substr(slash + 1);
    char address[64];
    std::snprintf(address, sizeof address, "+0x%lx", offset);
    return found.empty() ? image + address : found;
}

}  // namespace

std::string source_line(void* address) {
    static std::mutex mutex;
    static std::map<std::string, std::string, std::less<>> known;
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname) return "?";
    const unsigned long offset =
        static_cast<unsigned long>(static_cast<char*>(address) - static_cast<char*>(info.dli_fbase)) - 1;
    std::lock_guard lock(mutex);
    std::string& line = known[std::string(info.dli_fname) + "+" + std::to_string(offset)];
    if (line.empty()) line = look_up(info.dli_fname, offset);
    return line;
}

}  // namespace metal_emu
