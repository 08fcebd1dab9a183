// size_t and NULL are declared by the compiler or the prelude.
#pragma once
