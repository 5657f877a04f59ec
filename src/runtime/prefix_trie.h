// What is known of token sequences, as a tree whose edges are runs of tokens: which slots' caches hold them,
// and copies of the caches of finished sequences, within a budget of bytes, the least recently used leaving
// first. What sequences have in common is there once.
//
// Keys and values are kept for each token, so that any prefix of what is kept can be loaded. A recurrent
// state belongs to one length: where there are such states, only their lengths can be loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace forge {

class PrefixTrie {
  public:
    using Tokens = std::span<const std::int32_t>;

    // Bytes: of everything that is kept, of a token's keys and values, of a recurrent state (0: the model has none).
    struct Sizes { std::size_t budget = 0, row = 0, state = 0; };
    explicit PrefixTrie(const Sizes& sizes);
    ~PrefixTrie();

    // ---- Slots: the caches are elsewhere, here is who holds what.
    void hold(int slot, Tokens tokens);   // instead of what it held
    struct Held { int slot; std::size_t common; };
    // The slots whose tokens begin with at least the first of `wanted`, and how many they have in common with it.
    void held(Tokens wanted, std::vector<Held>& found) const;

    // ---- Copies.
    bool keeps_any() const { return sizes_.budget > 0; }
    struct State { std::size_t length; std::span<const std::byte> bytes; };
    // Writes the keys and values of tokens [first, last), a token after the other, to `out`.
    using Read = std::function<void(std::size_t first, std::size_t last, std::byte* out)>;
    // Keeps a sequence: reads what is not here yet, and drops other copies for it. Of what does not fit the budget
    // the beginning stays. `states`: recurrent states after so many tokens; without any, such a model's tokens are
    // not kept.
    void keep(Tokens tokens, std::span<const State> states, const Read& read);

    // How many leading tokens of `wanted` load() would give.
    std::size_t kept(Tokens wanted) const;
    using Write = std::function<void(std::size_t first, std::size_t last, const std::byte* rows)>;
    // Hands out the copies of tokens [from, kept(wanted)), run by run, and in `state` the recurrent state after them
    // (empty without such states; valid until the next change). Returns kept(wanted). Counts as a use.
    std::size_t load(Tokens wanted, std::size_t from, const Write& write, std::span<const std::byte>* state);

    std::size_t bytes() const { return bytes_; }   // of what is kept

  private:
    struct Node;
    using Recent = std::list<Node*>;   // most recently used first

    Node& insert(Tokens tokens);                  // the node where they end, made when it is not there
    Node& split(Node& node, std::size_t at);      // the upper part, of `at` tokens
    // The deepest kept node on the path of `wanted` that can be loaded, and how many tokens that gives.
    std::pair<Node*, std::size_t> loadable(Tokens wanted) const;
    void touch(Node& node);
    bool keep_rows(Node& node, std::size_t first, const Read& read);
    void keep_state(Node& node, std::span<const std::byte> state);
    bool make_room(std::size_t bytes, const Node& path);
    bool evict_one(const Node& path);
    void drop_rows(Node& node);
    void drop_state(Node& node);
    // Towards the root, of nodes that nothing can be loaded from; what leads to `path` stays.
    void drop_useless_rows(Node* node, const Node* path);
    void prune(Node* node);                       // towards the root, of nodes that say nothing
    bool recurrent() const { return sizes_.state > 0; }

    Sizes sizes_;
    std::size_t bytes_ = 0;
    std::unique_ptr<Node> root_;
    Recent recent_;                               // nodes with rows; with recurrent states, nodes with a state
    std::map<int, Node*> ends_;                   // where each slot's tokens end
};

// Length of the longest common prefix.
std::size_t common_prefix(PrefixTrie::Tokens a, PrefixTrie::Tokens b);

}  // namespace forge
