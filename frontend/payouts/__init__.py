"""`/payouts`: payouts as a bookkeeper does them, and who did what. Staff; every act needs a permission."""
