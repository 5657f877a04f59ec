#include "grammar/byte_trie.h"

#include <algorithm>
#include <string_view>

namespace forge {

ByteTrie ByteTrie::build(std::vector<std::pair<std::string, std::uint32_t>> strings) {
    std::erase_if(strings, [](const auto& s) { return s.first.empty() || s.first.size() > 65'000; });
    std::sort(strings.begin(), strings.end());
    ByteTrie t;
    std::vector<std::uint32_t> path;   // nodes of the string before
    std::string_view before;
    for (const auto& [text, item] : strings) {
        std::size_t common = 0;
        while (common < std::min(before.size(), text.size()) && before[common] == text[common]) ++common;
        while (path.size() > common) {
            t.nodes[path.back()].end = static_cast<std::uint32_t>(t.nodes.size());
            path.pop_back();
        }
        for (std::size_t i = common; i < text.size(); ++i) {
            path.push_back(static_cast<std::uint32_t>(t.nodes.size()));
            t.nodes.push_back({0, 0, 0, static_cast<std::uint16_t>(i + 1), static_cast<std::uint8_t>(text[i])});
        }
        Node& last = t.nodes[path.back()];
        if (last.count++ == 0) last.first = static_cast<std::uint32_t>(t.items.size());
        t.items.push_back(item);
        before = text;
    }
    for (const std::uint32_t n : path) t.nodes[n].end = static_cast<std::uint32_t>(t.nodes.size());
    t.deepest.resize(t.nodes.size());
    for (std::size_t i = t.nodes.size(); i-- > 0;) {
        std::uint16_t deepest = t.nodes[i].depth;
        for (std::uint32_t child = static_cast<std::uint32_t>(i) + 1; child < t.nodes[i].end; child = t.nodes[child].end) deepest = std::max(deepest, t.deepest[child]);
        t.deepest[i] = deepest;
    }
    return t;
}

}  // namespace forge
