// The object of a Json: its keys in the order in which they came, found in logarithmic time.
//
// nlohmann's own ordered_map walks all keys for each look-up, so that a stranger's object of n keys
// costs n^2 steps, and copies all values whenever it grows. Strangers choose the keys, so the index
// is a tree: a hash whose seed is known can be made to collide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace moeflux {

/// An object type for nlohmann::basic_json whose keys are strings. Iterators and references end
/// with any change of the number of keys, as a vector's do. A key must not be changed through an
/// iterator.
template <class Key, class Value, class = std::less<Key>,
          class = std::allocator<std::pair<const Key, Value>>>
class OrderedMap : public std::vector<std::pair<Key, Value>> {
 public:
  using Entries = std::vector<std::pair<Key, Value>>;
  using key_type = Key;
  using mapped_type = Value;
  using key_compare = std::equal_to<>;
  using value_type = typename Entries::value_type;
  using iterator = typename Entries::iterator;
  using const_iterator = typename Entries::const_iterator;
  using size_type = typename Entries::size_type;

  OrderedMap() = default;
  template <class Input>
  OrderedMap(Input first, Input last) {
    insert(first, last);
  }
  OrderedMap(std::initializer_list<value_type> entries) { insert(entries.begin(), entries.end()); }
  OrderedMap(const OrderedMap& other) : Entries(other) { copy_index(other); }
  OrderedMap(OrderedMap&& other) noexcept : Entries(std::move(other)) { take_index(other); }
  OrderedMap& operator=(const OrderedMap& other) {
    if (this == &other) return *this;
    Entries::operator=(other);
    copy_index(other);
    return *this;
  }
  OrderedMap& operator=(OrderedMap&& other) noexcept {
    Entries::operator=(std::move(other));
    take_index(other);
    return *this;
  }
  ~OrderedMap() = default;

  void swap(OrderedMap& other) noexcept { std::swap(*this, other); }
  void clear() noexcept {
    index_.reset();
    Entries::clear();
  }

  iterator find(std::string_view key) { return this->begin() + position(key); }
  const_iterator find(std::string_view key) const { return this->begin() + position(key); }
  size_type count(std::string_view key) const { return find(key) == this->end() ? 0 : 1; }

  /// As std::map's: an entry that is there stays as it is.
  template <class AnyKey, class AnyValue>
  std::pair<iterator, bool> emplace(AnyKey&& key, AnyValue&& value) {
    const iterator found = find(key);
    if (found != this->end()) return {found, false};
    Entries::emplace_back(std::forward<AnyKey>(key), std::forward<AnyValue>(value));
    if (index_ != nullptr) {
      index_->positions.insert(static_cast<uint32_t>(this->size() - 1));
    } else if (this->size() > kWalkedMax) {
      make_index();
    }
    return {std::prev(this->end()), true};
  }
  std::pair<iterator, bool> insert(const value_type& entry) {
    return emplace(entry.first, entry.second);
  }
  std::pair<iterator, bool> insert(value_type&& entry) {
    return emplace(std::move(entry.first), std::move(entry.second));
  }
  template <class Input>
  void insert(Input first, Input last) {
    for (; first != last; ++first) emplace(first->first, first->second);
  }

  template <class AnyKey>
  Value& operator[](AnyKey&& key) {
    return emplace(std::forward<AnyKey>(key), Value{}).first->second;
  }

  /// Takes time linear in the keys, as entries behind move up: not for a loop over keys.
  iterator erase(const_iterator first, const_iterator last) {
    const iterator next = Entries::erase(first, last);
    index_.reset();
    if (this->size() > kWalkedMax) make_index();
    return next;
  }
  iterator erase(const_iterator entry) { return erase(entry, std::next(entry)); }
  size_type erase(std::string_view key) {
    const iterator found = find(key);
    if (found == this->end()) return 0;
    erase(found);
    return 1;
  }

 private:
  // Up to so many keys are compared one after another: objects of configs and messages have fewer.
  static constexpr size_t kWalkedMax = 16;

  struct ByKey {
    using is_transparent = void;
    const Entries* const* entries;
    std::string_view key(uint32_t position) const { return (**entries)[position].first; }
    static std::string_view key(std::string_view key) { return key; }
    template <class Left, class Right>
    bool operator()(Left left, Right right) const {
      return key(left) < key(right);
    }
  };
  struct Index {
    explicit Index(const Entries* of) : entries(of), positions(ByKey{&entries}) {}
    Index(const Index&) = delete;
    Index& operator=(const Index&) = delete;
    const Entries* entries;  // whose positions they are: a map that moves says so here
    std::set<uint32_t, ByKey> positions;
  };

  ptrdiff_t position(std::string_view key) const {
    if (index_ != nullptr) {
      const auto found = index_->positions.find(key);
      return static_cast<ptrdiff_t>(found == index_->positions.end() ? this->size() : *found);
    }
    size_t at = 0;
    while (at < this->size() && Entries::operator[](at).first != key) ++at;
    return static_cast<ptrdiff_t>(at);
  }

  void make_index() {
    index_ = std::make_unique<Index>(this);
    for (uint32_t i = 0; i < this->size(); ++i) index_->positions.insert(i);
  }
  void copy_index(const OrderedMap& other) {
    index_.reset();
    if (other.index_ == nullptr) return;
    index_ = std::make_unique<Index>(this);
    auto& positions = index_->positions;
    for (const uint32_t position : other.index_->positions) {
      positions.insert(positions.end(), position);
    }
  }
  void take_index(OrderedMap& other) {
    index_ = std::move(other.index_);
    if (index_ != nullptr) index_->entries = this;
    other.clear();
  }

  std::unique_ptr<Index> index_;  // from kWalkedMax keys on
};

}  // namespace moeflux
