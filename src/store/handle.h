// The handles of store.h.
#pragma once

#include <memory>

#include "narrowcast/store.h"
#include "store/build/builder.h"
#include "store/table/table.h"

struct ncast_store {
  std::unique_ptr<narrowcast::store::Table> table;
};

struct ncast_store_builder {
  narrowcast::store::Builder builder;
};
