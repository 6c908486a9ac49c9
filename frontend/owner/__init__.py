"""`/me/`: what somebody who lends devices sees and does: devices, earnings, payout method, leave, closing it all."""
