// What a Document is made of. Only for document.cc, which fills it, and document_node.cc, which reads it.
#ifndef MESHWRIGHT_IR_DOCUMENT_TREE_H_
#define MESHWRIGHT_IR_DOCUMENT_TREE_H_

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "ir/document.h"

namespace meshwright {

struct Node {
  NodeKind kind = NodeKind::kNull;
  bool quoted = false;  // of a scalar: in quotes or a block, so it is text whatever it looks like
  int line = 0;         // both from 1
  int column = 0;
  std::string text;  // of a scalar
  std::vector<const Node*> children;

  const Node* parent = nullptr;  // null: the root
  size_t index = 0;              // among the parent's children
  std::string key;               // where the parent is a map; its place
  int key_line = 0;
  int key_column = 0;
};

struct Tree {
  std::string file_name;
  std::deque<Node> nodes;  // a deque: Nodes point at each other and must not move. The first is the root
};

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_DOCUMENT_TREE_H_
