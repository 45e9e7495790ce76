/*
 * tree.c - load: trees built and torn down.
 *
 * First balanced trees: one that stays, and many short-lived ones of several depths, torn in post-order, so that what was allocated together is
 * freed together. Then a search tree under random insertion and removal, whose nodes own a key of 8 to 40 bytes, so that neighbours in memory die
 * apart. One thread, no locks.
 *
 * Invariant of the search tree: keys left of a node are smaller, keys right of it are larger; random keys keep it shallow.
 */
#include "load.h"

#define KEEP_DEPTH 17
#define SHORT_DEPTHS 7
#define SHORT_MIN 4
#define SHORT_NODES ((uint64_t)1 << 19)
#define KEYS 100000
#define STEPS UINT64_C(2000000)

struct node {
    struct node *left, *right;
    uint64_t key;
    struct block text; /* used by the search tree only */
};

struct leaf_node {
    struct leaf_node *left, *right;
    uint64_t value;
};

static void *taken(size_t size_bytes) {
    void *memory = malloc(size_bytes);
    if (!memory) load_fail("malloc returned NULL");
    return memory;
}

static struct leaf_node *build(unsigned depth, uint64_t value) {
    struct leaf_node *node = taken(sizeof *node);
    *node = (struct leaf_node){.value = value};
    if (depth) {
        node->left = build(depth - 1, value * 2);
        node->right = build(depth - 1, value * 2 + 1);
    }
    return node;
}

static uint64_t tear(struct leaf_node *node, struct tally *tally) {
    uint64_t sum = node->value;
    if (node->left) sum += tear(node->left, tally) + tear(node->right, tally);
    free(node);
    tally->operations++;
    return sum;
}

static void balanced_trees(uint64_t nodes_per_depth, struct tally *tally) {
    struct leaf_node *keep = build(KEEP_DEPTH, 1);
    for (unsigned i = 0; i < SHORT_DEPTHS; i++) {
        unsigned depth = SHORT_MIN + 2 * i;
        for (uint64_t done = 0; done < nodes_per_depth; done += (uint64_t)2 << depth) tally->checksum += tear(build(depth, done + 1), tally);
    }
    tally->checksum += tear(keep, tally);
}

static struct node **find(struct node **root, uint64_t key) {
    while (*root && (*root)->key != key) root = key < (*root)->key ? &(*root)->left : &(*root)->right;
    return root;
}

static void insert(struct node **place, uint64_t key, struct rng *rng) {
    struct node *node = taken(sizeof *node);
    *node = (struct node){.key = key, .text = block_take(rng_between(rng, 8, 40), key)};
    *place = node;
}

/* Takes the node at *place out of the tree; where it has two children, its successor takes its place. */
static void remove_node(struct node **place, struct tally *tally) {
    struct node *node = *place;
    if (node->left && node->right) {
        struct node **low = &node->right;
        while ((*low)->left) low = &(*low)->left;
        struct node *successor = *low;
        *low = successor->right;
        successor->left = node->left;
        successor->right = node->right;
        *place = successor;
    } else {
        *place = node->left ? node->left : node->right;
    }
    block_drop(&node->text, tally);
    free(node);
    tally->operations++;
}

static void search_tree(uint64_t steps, struct tally *tally) {
    struct node *root = NULL;
    struct rng rng = rng_seed(11);
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t key = rng_below(&rng, KEYS) * UINT64_C(0x9e3779b97f4a7c15); /* spread, so that order of arrival is not order of keys */
        struct node **place = find(&root, key);
        if (*place)
            remove_node(place, tally);
        else
            insert(place, key, &rng);
    }
    while (root) remove_node(&root, tally);
}

int main(int argc, char **argv) {
    struct load_args args = load_arguments(argc, argv);
    struct tally tally = {0};
    uint64_t start_ns = load_clock_ns();

    args.threads = 1;
    balanced_trees(load_scaled(&args, SHORT_NODES * 6), &tally);
    search_tree(load_scaled(&args, STEPS), &tally);
    load_report("tree", &args, &tally, load_clock_ns() - start_ns);
    return 0;
}
